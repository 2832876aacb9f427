"""One batch, from a request to tensors in shared memory.

In: a `BatchRequest` that names rows. Out: uint8 or float32 images, or JPEGs, in a slot of shared memory; and columns.
Must not know: devices, the order of an epoch.
"""
