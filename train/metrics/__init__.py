"""Exact classification metrics by face and by video, over all ranks.

In: logits and labels of a validation. Out: metrics by name, ROC curves, confusion matrices.
Must not know: runs, levers.
"""
