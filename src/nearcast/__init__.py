"""nearcast tells the right people about the right things, near them, in time."""
