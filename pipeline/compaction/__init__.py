"""Copies the rows of many small files into few large ones: `facefeed compact`.

    finished dataset -> groups of small units -> a part of the plan -> merged files -> manifest + index

The units of that part replace the small ones as a changed input's unit replaces its unit, and are published in the same
way. No video is read and no image is encoded again.

In: OUT, finished, or compacted half-way. Out: OUT with the same rows in fewer files.
Must not know: videos, sources, how readers use the rows.

| module | what it holds |
|---|---|
| grouping | which units are merged: a part of the plan |
| merging | the files of merged units; several at once, on threads |
| merged_columns | their added columns |
| run | `compact` |
| report, cli | the report; the command |
"""
