"""From a worker's batch to what the training loop gets.

In: a uint8 batch in shared memory. Out: a normalised batch on the CPU or on a device, one ahead of the step.
Must not know: datasets, the order of an epoch.
"""
