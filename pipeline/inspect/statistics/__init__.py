"""Statistics of a dataset, from its index, manifest and receipts.

In: an open dataset. Out: counts and quantiles by group, video, class and split.
Must not know: pages, terminals, images.
"""
