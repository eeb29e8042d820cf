"""Matching on a stream, as a data source of Spark's: what `match_stream` is made of.

`offsets` say how far both logs were read, and so pin the version of the subscriptions;
`register` folds changes; `layers` and `bases` put a version where workers map it; `source` is
what Spark talks to, `worker` what runs in its tasks; `folder` reads logs that are folders.
"""
