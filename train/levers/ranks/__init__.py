"""Levers for several processes: DDP, ZeRO, FSDP2, synchronised BatchNorm.

In: devices and nodes. Out: a strategy for Lightning's Trainer.
Must not know: runs, recipes.
"""
