"""Manipulation masks of fakes: the set's own, or by comparison with the matching frames of their source videos.

In: a fake's frames and faces, and its own mask or its source. Out: a mask and the fraction of changed pixels for each
face.
Must not know: plans, units, files of the dataset.
"""
