"""The order of an epoch and the part of each rank, as pure functions of numbers that are the same on every machine.

    Shuffling (shuffle=, window_images=) + max_per_video=, index, batch -> RowShuffler
    Quotas, Weights, Pairs, BlendPairs or Unbalanced (balance=) .bind(rows, RowShuffler) -> BoundBalance
    BoundBalance.epoch_rows(epoch, key) -> all rows of an epoch in order
    EpochSampler: those rows, cut into steps and ranks -> BatchRequest

In: row numbers, their labels and videos, a seed, rank and epoch. Out: batch requests: the row numbers of each batch.
Must not know: pixels, processes, devices.
"""
