"""Media files and folders on disk: the search for them, their names, and the folders that they may lie in.

In: a root and further allowed folders. Out: `FoundFile`s with size and mtime, or the reason why one is not read.
Must not know: layouts, labels, what is in a file.
"""
