"""Splits that no original, recording or person crosses.

In: the entries of a listing. Out: a split for each, or a refusal that names the leak.
Must not know: plans, media.
"""
