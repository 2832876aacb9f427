"""Planning: groups inputs into units, finds changes since the last run, and tracks the state of the plan.

In: a `Listing`, the options, and the contents of OUT. Out: plan parts, the run state, checked limits.
Must not know: Dask, how a frame is decoded or a face is found.

| module | what it holds |
|---|---|
| options | `Options`: what the user chooses; `JobSpec`: what every worker gets; the config and its hash |
| validation | `prepare_job`: checks the arguments of `precompute` before anything is written |
| worker_options | checks `--workers`, `--scheduler` and `--cluster` together |
| image_clips, listed_masks | joins the frames of a folder into one clip; masks that lie beside the clips |
| recorded | plan and config that OUT holds, which a further run must continue |
| plan | `Plan`, `PlanPart`, `Unit`: which inputs are processed together; only ever appended to |
| incremental/ | what has changed since the last run, and the part of the plan for it |
| cost_model | seconds of work per input, so that units are of similar size |
| content_hash | whether files of a new time or name hold the same bytes; inputs of equal content |
| receipts | `ReceiptReader`: receipts as they are on disk, of which equal bytes are parsed once |
| run_state | from plan and receipts: units that are finished or pending, outcomes of all inputs |
| job_share | `JobShare`: the units that `--part 3/8` takes |
| failure_limit, damage_limits | failed inputs against `--max-failed`; outcomes by another `--max-damaged` |
"""
