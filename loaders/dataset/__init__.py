"""`FaceDataset`: rows of a precomputed dataset as pixels and points.

In: OUT, a split, filters. Out: images, RGB uint8 (H, W, 3), points in `crop` pixels, columns.
Must not know: the order of an epoch, batches, worker processes.
"""
