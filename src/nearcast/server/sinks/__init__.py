"""Notifications sent to where subscribers want them: webhooks, and what else is in `protocols`.

`ports` says what a protocol has to do, `engine` runs one `runner` for each sink: its queue, its
retries, its `circuit`. `ledger` is what they have the core write down; `delivery` reads what a
subscription says of its sink.
"""
