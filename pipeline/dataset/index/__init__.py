"""The index: the small columns of every row and the byte range of its image and mask; Arrow IPC, memory-mapped.

Derived from the receipts' files alone, so it can be rebuilt at any time.

In: ``OUT/index.arrow``. Out: `Index`, its cells as NumPy arrays; the schema that `IndexBuilder` writes.
Must not know: the order in which rows are read, or what an image contains.
"""

from .layout import INDEX_COLUMNS, current_index_path, index_schema
from .reader import Index
from .row_range import RowRange, Selection

__all__ = ["INDEX_COLUMNS", "Index", "RowRange", "Selection", "current_index_path", "index_schema"]
