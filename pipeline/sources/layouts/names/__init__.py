"""Names of files and folders of published sets: what is the same video, and what is a folder spelt otherwise.

In: names on disk, and as published. Out: which are the same, or a refusal with the name that is meant.
Must not know: any one set.
"""
