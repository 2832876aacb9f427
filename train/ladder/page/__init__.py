"""The page of a ladder.

In: a ladder's report. Out: one HTML file that opens without a network.
Must not know: processes, torch.
"""
