"""The operators of CPSL at run time: what passes, what waits, what a new instance completes."""
