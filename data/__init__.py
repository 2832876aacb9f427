"""The sample: a small real/fake face set in DFDC's layout, made on the spot (no media lies in git).

`facefeed sample DIR` on the command line, `facefeed.data.sample.make_sample` in Python. README.md says what
the videos are, where the two portraits come from, and what each awkward video is for.
"""
