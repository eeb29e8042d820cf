"""Measurements that can be trusted: one runner, seeded workloads, stored results.

An experiment is a list of trials; a trial lets contenders take turns at one operation and
refuses every timing whose answer is wrong. Records are kept as JSON, and tables, plots and
the report are drawn from records alone.
"""
