"""Planning: groups inputs into units, finds changes since the last run, and tracks the state of the plan.

In: a `Listing`, the options, and the contents of OUT. Out: plan parts, the run state, checked limits.
Must not know: Dask, how a frame is decoded or a face is found.
"""
