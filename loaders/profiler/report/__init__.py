"""Reports of a profile: console, JSON, trace, page.

In: a `Profile`. Out: text and files.
Must not know: loaders, clocks.
"""
