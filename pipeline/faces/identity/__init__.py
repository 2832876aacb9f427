"""Identity tracking: one track id per person in a video, from position, motion and appearance.

In: the faces of successive frames. Out: a track id for each.
Must not know: detectors, crops, rows.
"""
