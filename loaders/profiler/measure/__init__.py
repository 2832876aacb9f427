"""What a training loop and the makers of its batches saw at their clocks.

In: a loader and a step. Out: a `Recording`.
Must not know: what is judged, advised or printed.
"""
