"""`facefeed augment`: an HTML gallery of what an augmentation pipeline does to real faces.

In: OUT and a pipeline's file. Out: one HTML page.
Must not know: `FaceDataLoader`, batches.
"""
