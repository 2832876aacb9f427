"""FaceForensics++, as published and as it is shared.

In: a folder. Out: a `Listing`.
Must not know: other layouts, and what is done with a listing.
"""
