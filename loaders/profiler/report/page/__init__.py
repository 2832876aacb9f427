"""The page of a profile: sentences, figures, and one HTML file that holds them.

In: a `Profile`. Out: one HTML file that opens without a network.
Must not know: loaders, clocks.
"""
