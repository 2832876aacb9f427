"""The units of a plan over the workers of a Dask cluster.

In: a plan part and the job's options. Out: a receipt a unit; failures attributed to a worker, a unit or the whole job.
Must not know: layouts of a source, how the index and the manifest are written.
"""
