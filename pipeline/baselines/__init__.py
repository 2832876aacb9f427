"""The naive dataset that benchmarks compare with; found by name through the entry points `facefeed.baselines`.

In: a folder of videos. Out: a map-style dataset that decodes, detects and crops in `__getitem__`.
Must not know: plans, units and the dataset's files.
"""
