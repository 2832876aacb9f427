"""`facefeed inspect`: what a dataset holds, for a person to judge: numbers in the terminal, faces on a page.

    index -> statistics -> findings; rows -> figures; both -> survey -> report, page

In: OUT. Out: a report on the terminal, JSON, one HTML page.
Must not know: Dask, decoders, detectors.

| module | what it holds |
|---|---|
| statistics/ | the figures of a dataset: by group, video, class and split |
| findings | the figures in words: errors, warnings, what is ok |
| figures/ | faces, real and fake pairs, histograms |
| survey | all of it, from one pass over the dataset |
| page, *.jinja, page.css, page.js | the page |
| report, formatting, cli | the terminal, `--json` and the command |
"""
