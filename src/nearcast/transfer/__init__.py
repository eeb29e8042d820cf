"""Bulk in and out: subscriptions, fences and live events in files, into and out of a broker.

`import_file` and `export_file` say how far they have come in something beside the file, and go on
there when they are asked again, whatever ended them.
"""

from nearcast.transfer.exporting import export_file
from nearcast.transfer.importing import import_file
from nearcast.transfer.kinds import KINDS
from nearcast.transfer.progress import Done, Told

__all__ = ["KINDS", "Done", "Told", "export_file", "import_file"]
