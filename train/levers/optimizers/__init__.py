"""Levers that change the optimizer: fused steps, 8-bit states.

In: the optimizers that a module configures. Out: the same objects, replaced in place.
Must not know: other levers, runs.
"""
