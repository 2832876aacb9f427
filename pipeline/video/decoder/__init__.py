"""The decoder's process: all that touches the bytes of a file that nobody vouches for.

In: a request and an open descriptor, over a pipe. Out: frames, RGB uint8 upright, or one reason why not.
Must not know: faces, rows; all modules but `child` also serve the baseline.
"""
