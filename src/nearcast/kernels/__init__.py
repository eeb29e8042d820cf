"""Compiled helpers shared by the indexes and the matcher: flat arrays in, flat arrays out."""
