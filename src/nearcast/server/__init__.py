"""The broker that people run: HTTP, server-sent events and WebSocket over one durable core.

`settings` says how, `house` holds the store and a broker a tenant, `core` is the one thread that
calls them, `feeds` carry what they tell to whoever is connected. `operations` is the table of
what can be asked, `events`, `things`, `subscribers`, `tools` and `upkeep` are the answers,
`app` puts them together and `run` is the process. docs/server.md describes the face.
"""
