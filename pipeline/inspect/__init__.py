"""What a dataset holds, for a person to judge: numbers in the terminal, faces on a page.

| module | what it holds |
|---|---|
| columns, videos | the index's columns as arrays, what is measured of a face, and what there is of each video |
| census, spread | the numbers: by group, by class and in all |
| account, crossing | what became of the inputs, and what crosses splits |
| findings | the numbers in plain words: errors, warnings, what is ok |
| choice, pairs | which faces are worth showing |
| pictures, sheets | their pixels and outlines |
| histograms | curves of every class |
| survey | all of it, from one go over the dataset |
| page, *.jinja, page.css, page.js | the page |
| report, words, cli | the terminal, `--json` and the command |
"""
