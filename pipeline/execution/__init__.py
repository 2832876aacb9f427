"""Runs the units of a plan on the workers of a Dask cluster.

In: pending units and the job. Out: a receipt per unit; failures attributed to a worker, a unit or the whole job.
Must not know: layouts of a source, how the index and the manifest are written.

| module | what it holds |
|---|---|
| run_units | all units of a run, on the workers that its options name |
| unit_scheduler, unit_queue | `UnitScheduler`: one unit per worker, retries, halves; units that wait |
| failure_attribution | whether a worker, a unit or the whole job is at fault |
| workers | `WorkerPool`: the cluster's workers as the driver uses them |
| cluster, certificate | starts a Dask cluster or joins a running one; the certificate of its connections |
| batch_system, worker_supply | workers as jobs of Slurm, PBS or SGE; scales a cluster, and replaces jobs that ended |
| capacity | how many workers and decoders a machine has cores, memory and GPUs for: the defaults |
| unit_task | on the worker: the Dask task, and the plugin that installs the `UnitWorker` of a process |
| unit_worker, decode_pool | one unit from its inputs to file and receipt; the decoders that share its inputs |
| progress | progress on standard error: a bar or JSON lines |
"""
