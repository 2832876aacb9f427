"""What a fake changed, from its source video's same frames.

In: a fake's frames and faces, and its source. Out: the share of changed pixels and a mask for each face.
Must not know: plans, units, files of the dataset.
"""
