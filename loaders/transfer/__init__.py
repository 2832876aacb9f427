"""From a worker's batch to the batch of the training loop.

In: a uint8 or float32 batch, or JPEGs, in shared memory. Out: a normalised batch on the CPU, or prefetched to a device.
Must not know: datasets, the order of an epoch.
"""
