"""Whether the device waits for data, why, what would help, and how sure that is. README.md beside this is the guide.

| module | what it holds |
|---|---|
| cli | the command `facefeed profile` |
| profile, result | `profile(loader, step)`: the verdict, then what explains it; what a profile found |
| estimate, steady | the steps in one piece, until there is a steady state to judge |
| trials | the same step on the same loader with something changed; advice that is followed |
| live, ticks | a loader gone through with a look at the clock, the host's or a CUDA device's |
| stamps, counters | when each batch was made, and on what the time went, from whichever process made it |
| steps | what stands for a training step where there is no GPU |
| recording | what was seen, and estimator A: how long the device waited, and for what |
| queue | estimator C: the DataLoader's queue, replayed |
| situation | what the same loader would do under another step, with other workers, on other cores |
| bounds | intervals for series whose values follow each other |
| verdict, gate | FED, MARGINAL, STARVED or INCONCLUSIVE, and why; what a build asks for |
| advice, instead | what would help, worked out before it is tried; what is said where nothing is known to |
| variants, storage | the same loader with something changed; files in and out of the page cache |
| report, trace | for people in the terminal, for programs, and as a timeline for Perfetto |
| page/ | the page: its figures, and a profile in plain sentences |
| selftest/ | delays of known length, and whether they are found |
"""
