"""The sandboxed decoder process: all code that parses the bytes of untrusted files.

In: requests with the path of a file, over a pipe. Out: frames, RGB uint8 upright, or one reason why not.
Must not know: faces, rows; all modules but `child` also serve the baseline.
"""
