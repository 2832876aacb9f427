"""Geometry of a face, computed from its box and landmarks: crop, alignment, smoothing, hull, regions, overlap.

In: boxes and landmarks in `frame` pixels. Out: crops, and points in `crop` pixels.
Must not know: detectors, identities, rows.
"""
