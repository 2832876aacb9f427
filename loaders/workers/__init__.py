"""The processes that prepare batches: how many, how they start, how their end is noticed.

In: requests. Out: worker processes, windows read ahead, blocks of shared memory for each request.
Must not know: devices, training loops.
"""
