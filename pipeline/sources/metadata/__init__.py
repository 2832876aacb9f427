"""Values of metadata that comes with a source: JSON, segments in time, columns of the source's own.

In: files beside the media, or their cells. Out: records, segments in seconds, typed values.
Must not know: layouts, the search for media.
"""
