"""Transforms that repeat a published method: self-blended images, Face X-ray, LipForensics' mouths, and controls.

In: a face within a `FaceCompose`. Out: the same, transformed.
Must not know: datasets, batches.
"""
