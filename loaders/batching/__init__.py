"""One batch, from a request to tensors in shared memory.

In: a `Ticket` that names rows. Out: uint8 images and columns, in a block of shared memory.
Must not know: devices, in which order rows come.
"""
