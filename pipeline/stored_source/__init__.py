"""Sources in object stores, such as ``s3://bucket/videos``: listed like a folder, fetched file by file.

    address -> outline, a folder of empty files -> Listing; each file -> local disk, while it is decoded

In: an address that fsspec knows. Out: a folder that layouts list as they list any other, and single files on the local
disk.
Must not know: layouts, plans, or what is in the files.

| module | what it holds |
|---|---|
| source | `open_source`: SRC as a folder, for as long as a run takes |
| outline | names, sizes and times of the files of a store, as a folder |
| staging | files that are on the local disk while they are decoded |
"""
