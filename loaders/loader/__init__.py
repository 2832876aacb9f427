"""`FaceDataLoader`: torch's DataLoader with exact order, resume and throughput.

In: a `FaceDataset` and options. Out: batches on the CPU or a device; state, statistics, a description of the epoch.
Must not know: the profiler, training loops.
"""
