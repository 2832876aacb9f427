"""Clips: consecutive images of one track, as the items that an epoch orders.

    rows of the index -> runs without a gap (runs) -> clips that may be drawn (clip_items) -> rows of a batch's clips

In: rows of the index, a `Clip`. Out: items for the `EpochSampler`, and the rows of each item in an epoch.
Must not know: pixels, processes, devices.
"""
