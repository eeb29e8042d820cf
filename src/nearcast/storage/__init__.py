"""Stores that survive the process: what stands behind the broker's `Store` port.

`urls` says where one is, `rows` how values are written, `sqlite` is the embedded store.
"""
