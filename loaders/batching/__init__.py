"""One batch, from a request to tensors in shared memory.

In: a `BatchRequest` that names rows. Out: uint8 or float32 images and columns, the images in a slot of shared memory.
Must not know: devices, the order of an epoch.
"""
