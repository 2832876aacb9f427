"""`facefeed profile --self-test`: delays of known length, and whether the profiler finds them."""
