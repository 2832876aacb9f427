"""Train, val and test splits that no original, recording or person crosses, but who links over 30 % of all videos.

In: the entries of a listing. Out: a split for each, or an error that names the leak.
Must not know: plans, media.
"""
