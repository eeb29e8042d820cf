"""The compiled half of fences: tables, timers, and what a position or a move does."""
