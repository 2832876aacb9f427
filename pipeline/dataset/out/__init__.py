"""OUT: where its files lie, and how they are read, published and removed in a folder.

In: the path of OUT. Out: `OutPaths`, with the paths of its files and their `OutFiles`.
Must not know: what is in the files.
"""

from .files import FolderFiles, OutFiles
from .paths import RECEIPT_FOLDERS, OutPaths

__all__ = ["RECEIPT_FOLDERS", "FolderFiles", "OutFiles", "OutPaths"]
