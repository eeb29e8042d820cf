"""nearcast on Spark: DataFrames in, DataFrames out, on a laptop or a cluster.

Arrow and the compiler are loaded by the functions that need them, PySpark too, so
`import nearcast.spark` is quick and works without it. Names are bound at once, because a
module of the same name would take their place as soon as somebody imports that.
"""

from nearcast.spark.detect import detect
from nearcast.spark.fences import fences
from nearcast.spark.match import explain, match, rejected
from nearcast.spark.session import session
from nearcast.spark.simulate import simulate
from nearcast.spark.streams import event_stream, listen, match_stream

__all__ = [
    "detect",
    "event_stream",
    "explain",
    "fences",
    "listen",
    "match",
    "match_stream",
    "rejected",
    "session",
    "simulate",
]
