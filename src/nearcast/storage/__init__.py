"""Stores that survive the process: what stands behind the broker's `Store` port.

`urls` says where one is, `rows` how values are written, `schema` in which tables, `statements`
what is asked of those. `store` is the broker's port over them, `retention` what is thrown away,
`keys` who may come in. Of `tables` there is more than one kind: `sqlite` is the embedded one.
"""
