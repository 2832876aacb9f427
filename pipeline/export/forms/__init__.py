"""The forms of an export: each plans its parts, and writes the files of a part.

In: rows of OUT, a staging folder. Out: files, at the paths that they will have below DEST.
Must not know: what else DEST holds, how files are published.

| module | contents |
|---|---|
| form | what a form promises; parts |
| folders, csv_table | images as stored, in folders of splits, classes and videos; columns as CSV |
| shards, webdataset, huggingface | shards of a given size; tar and Parquet shards |
| deepfakebench, benchmark_sets, dataset_json | frames, landmarks and masks; names of sets and classes; their JSON |
| by_name | the form of a request |
"""
