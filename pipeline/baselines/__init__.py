"""The naive dataset that benchmarks compare with; found by name through the entry points `facefeed.baselines`.

In: a folder of videos, OUT. Out: a map-style dataset that decodes, detects and crops in `__getitem__`.
Must not know: receipts, units and the dataset's files.
"""
