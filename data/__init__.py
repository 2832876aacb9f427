"""The sample: a small real/fake face set in DFDC's layout, generated locally (git holds no media).

In: a seed. Out: a folder of videos with a metadata.json.
Must not know: everything but PyAV, OpenCV and the pipeline's errors.

`facefeed sample DIR` on the command line, `facefeed.data.sample.make_sample` in Python. docs/sample.md documents
the videos, the source of the two portraits, and the edge case that each unusual video covers.
"""
