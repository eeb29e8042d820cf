"""CPSL: patterns of events in space and time, and what detects them.

The language is described in docs/cpsl.md. It follows B. Jin et al., "Specifying and
detecting spatio-temporal events in the internet of things" (Grus), appendix A.
"""
