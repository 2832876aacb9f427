"""`FaceClassifier`: a timm network as a LightningModule.

In: `ModelOptions`. Out: logits, losses, an optimizer and its schedule.
Must not know: runs, levers, datasets on disk.
"""
