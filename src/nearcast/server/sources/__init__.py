"""Where events come from beside HTTP: topics of Kafka, and what else is listed in `running`.

Each source reads messages, `envelopes` says what is in one, and `intake` has the core take them:
events, how far they were read, and what could not be read, in one transaction.
"""
