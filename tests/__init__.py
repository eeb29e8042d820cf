"""Tests of nearcast."""
