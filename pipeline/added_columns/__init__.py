"""Columns computed for a finished dataset from its stored crops: no video is read and no image written again.

In: OUT and a `ColumnMaker`. Out: OUT/columns/<name>, and an index that has the columns.
Must not know: videos, sources, how readers use the columns.

| module | what it holds |
|---|---|
| maker | `StoredFaces`, the `ColumnMaker` contract |
| landmarks | the maker of dense landmarks |
| by_name | makers by name or "FILE.py:Class" |
| values | what a maker returns, checked, as Arrow |
| unit_columns | one unit: from its stored crops to the published column file |
| workers | units on several processes |
| run | `add_columns`, `remove_columns` |
| report, cli | reports; the commands |
"""
