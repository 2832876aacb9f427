"""Several datasets as one: one index over all of them, and an order in which each has its share of every batch.

    folders -> MixtureDataset, whose index is a MixedIndex (rows in sequence, labels and classes by their names)
    weights or temperature -> shares -> interleave: which dataset each image of an epoch is of
    balance= within each dataset -> MixtureBalance, a balance of the whole that `EpochSampler` takes like any other

In: finished datasets, their names and weights. Out: a dataset and a balance, for the loader.
Must not know: batches, processes, the loader.
"""
