"""`facefeed profile --self-test`: injects known delays and checks that the profiler recovers them.

In: loaders and steps with injected delays. Out: eight checks, each passed or not, and a page.
Must not know: datasets.
"""
