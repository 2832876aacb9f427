"""The order of an epoch and the part of each rank, as pure functions of numbers that are the same on every machine.

    Shuffling (shuffle=, window_images=) + max_per_video=, index, batch -> RowShuffler
    Quotas, Weights, Pairs, BlendPairs or Unbalanced (balance=) .bind(rows, RowShuffler) -> BoundBalance
    BoundBalance.epoch_rows(epoch, key) -> an Order: the rows of an epoch, computed where they are asked for
    EpochSampler: those rows, cut into steps and ranks -> BatchRequest

In: row numbers, their labels and videos, a seed, rank and epoch. Out: batch requests: the row numbers of each batch.
Must not know: pixels, processes, devices.

| module | what it holds |
|---|---|
| epoch_sampler | `EpochSampler`: `order` is that of an epoch, `request` a rank's part of one step |
| bound_balance | makes that order: `epoch_rows` of each balance |
| row_shuffler | `RowShuffler`: shuffles the rows that a balance gives it, within windows and `max_per_video` |
| orders | `Order`: permutations and windows of any length, computed in parts of bounded memory |
| shuffling | the argument `shuffle=`: which order that is; videos spread over batches |
| hashing | keys and hashes, from which all orders follow |
| balance, balance_names, pairing | the argument `balance=`, also by name; which real row belongs to which fake |
| batch_request, repeats | `BatchRequest`; how often a row came before in the epoch |
| padding | which units an epoch's last step repeats, where it has fewer than there are ranks |
| ranks, saved_position | rank and number of ranks; the position that a saved state holds |
"""
