"""The sample: a small real/fake face set in DFDC's layout, made on the spot (no media lies in git).

In: a seed. Out: a folder of videos with a metadata.json.
Must not know: everything but PyAV, OpenCV and the pipeline's errors.

`facefeed sample DIR` on the command line, `facefeed.data.sample.make_sample` in Python. README.md says what
the videos are, where the two portraits come from, and what each awkward video is for.
"""
