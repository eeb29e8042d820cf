"""The kernels of clause tiles; `layout` says how a match works."""
