"""Runs the units of a plan on the workers of a Dask cluster.

In: pending units and the job. Out: a receipt per unit; failures attributed to a worker, a unit or the whole job.
Must not know: layouts of a source, how the index and the manifest are written.
"""
