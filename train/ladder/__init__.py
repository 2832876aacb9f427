"""`facefeed ladder`: measures the speed-up of each lever on this machine, in interleaved rounds.

In: OUT, a recipe, levers. Out: a table, JSON, a page.
Must not know: runs and their folders.

| module | what it holds |
|---|---|
| rungs | which rungs there are, and which cannot run here |
| scheduler | `run_ladder`: interleaved rounds, then the best set of the levers that pay |
| runner, rung_process, messages | runs a ladder, each rung in a process of its own; starts and ends it; its requests |
| rung/ | what such a process does: a short training that is timed |
| results | measurements of rungs, and their comparison over repeats |
| formatting, report, page/ | figures as text; the table and `--json`; the page |
| progress, cli | progress on standard error; the command |
"""
