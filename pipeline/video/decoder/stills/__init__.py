"""Still pictures: one alone, and a folder of them as a clip.

In: an open file, or a folder. Out: upright RGB frames with the operations of `VideoFile`.
Must not know: videos, PyAV.
"""
