"""`facefeed profile --self-test`: delays of known length, and whether the profiler recovers them.

In: loaders and steps with injected delays. Out: eight checks, each passed or not, and a page.
Must not know: datasets.
"""
