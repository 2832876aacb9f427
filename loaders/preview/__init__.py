"""`facefeed augment`: a page of what a transform does to real faces.

In: OUT and a pipeline's file. Out: one HTML page.
Must not know: loaders, batches.
"""
