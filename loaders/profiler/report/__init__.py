"""Reports of a profile: console, JSON, trace, page; and their sentences on what to do.

In: a `Profile`. Out: text and files.
Must not know: loaders, clocks.
"""
