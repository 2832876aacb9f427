"""OUT in a store: its files are created, replaced and removed there, and a local folder is their working copy,
for as long as a process works.

In: the address of an OUT. Out: its `OutPaths`, whose files are `StoreFiles`.
Must not know: units, runs, or what is in the files.
"""

from .opening import open_out
from .out_store import StoreFiles
from .remote import WritableFiles

__all__ = ["StoreFiles", "WritableFiles", "open_out"]
