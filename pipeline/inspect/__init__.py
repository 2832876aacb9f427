"""`facefeed inspect`: reports the content of a dataset: statistics in the terminal, faces on an HTML page.

    index -> statistics -> findings; rows -> figures; both -> inspection -> report, page

In: OUT. Out: a report on the terminal, JSON, one HTML page.
Must not know: Dask, decoders, detectors.

| module | contents |
|---|---|
| statistics/ | counts and quantiles by group, video, class and split |
| findings/ | errors, warnings and what is ok, derived from the statistics |
| figures/ | contact sheets of faces, pairs of fakes and sources, histograms |
| inspection | collects all of these in one pass over the dataset |
| page, *.jinja, page.css, page.js | the HTML page |
| report, formatting, cli | terminal report, `--json` and the command |
"""
