"""Builds the rows of one input from its frames.

In: one `Entry`, a decoder, a detector. Out: record batches of the schema, and the input's outcome.
Must not know: the cluster, how files are published.

| module | what it holds |
|---|---|
| input_pipeline | `InputPipeline`: one input from its file to its outcome and rows |
| decoded_file | whether the file is the one that was planned, and stays so while it is decoded |
| own_masks | reads the own mask of an input, before its frames |
| row_builder | `RowBuilder`: detect, track, crop, hull, mask, encode |
| frame_batches, prefetch | batches of frames for the detector; one batch ahead, on another thread |
| face_search | which faces of a frame become rows, and their shapes |
| landmark_columns | columns from landmarks and shape |
| cache_filler | stores frames and faces of an original that its fakes need |
| reuse | rows of replaced units, for inputs that need not be decoded again |
| spools | temporary files, in memory up to a common limit |
"""
