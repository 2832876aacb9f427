"""Clips: images that are frames of one, the form of a clip that is used, and what is compared with its original.

In: media files, or the entries of a listing. Out: each clip once, its frames with one `footage`.
Must not know: layouts.
"""
