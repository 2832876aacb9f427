"""A profile for people and for programs: terminal, JSON, trace, page.

In: a `Profile`. Out: text and files.
Must not know: loaders, clocks.
"""
