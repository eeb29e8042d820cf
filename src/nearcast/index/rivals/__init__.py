"""The structures that the papers compare themselves with, one package each."""
