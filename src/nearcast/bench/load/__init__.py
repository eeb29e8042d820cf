"""A server in a process of its own, and the load beside it: plain sockets, which cost little."""

from nearcast.bench.load.hooks import Hooks
from nearcast.bench.load.postgres import PostgresNode
from nearcast.bench.load.posts import Posts, request
from nearcast.bench.load.process import Process
from nearcast.bench.load.sockets import Sockets

__all__ = ["Hooks", "PostgresNode", "Posts", "Process", "Sockets", "request"]
