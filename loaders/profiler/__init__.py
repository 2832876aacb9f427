"""Whether the device waits for data, why, what would help, and how sure that is.

| module | what it holds |
|---|---|
| profile | `profile(loader, step)`: the estimators in turns; the gate |
| live, stamps | a loader gone through with a look at the clock, in every process |
| steps | what stands for a training step where there is no GPU |
| recording | what was seen, and estimator A: the wait beyond what handing a batch over takes |
| queue | estimator C: the DataLoader's queue, replayed |
| bounds | intervals for series whose values follow each other |
| verdict | FED, MARGINAL, STARVED or INCONCLUSIVE, and why |
| report | for people and for programs |
"""
