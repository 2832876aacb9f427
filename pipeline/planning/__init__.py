"""Which inputs make which unit, what changed since the last run, and what the plan has come to.

In: a `Listing`, the options, and what stands in OUT. Out: plan parts, run state, limits that are checked.
Must not know: Dask, how a frame is decoded or a face is found.
"""
