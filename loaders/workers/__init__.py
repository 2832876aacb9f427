"""Worker processes: how many, how they start, what they can import, how their deaths are noticed.

In: requests. Out: worker processes, windows read ahead, a slot of shared memory for each request.
Must not know: devices, training loops.
"""
