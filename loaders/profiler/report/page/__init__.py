"""The HTML page of a profile: sentences, tables and figures in one file.

In: a `Profile`. Out: one HTML file that opens without a network.
Must not know: loaders, clocks.
"""
