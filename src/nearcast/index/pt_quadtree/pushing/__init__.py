"""Lists of inner nodes handed down to leaves, as far as there is room (LFilter §4.1)."""
