"""Index structures behind one contract: see `base` for the contract, `registry` for the list."""
