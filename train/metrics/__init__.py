"""How well a classifier does, by face and by video, exactly and over ranks.

In: logits and labels of a validation. Out: figures, ROC curves, confusion matrices.
Must not know: runs, levers.
"""
