"""`FaceDataset`: rows of a precomputed dataset as pixels and points.

In: OUT, a split, filters. Out: images, RGB uint8 (H, W, 3), points in `crop` pixels, columns.
Must not know: the order of an epoch, batches, worker processes.

| module | what it holds |
|---|---|
| face_dataset | `FaceDataset`: a face by its position, through cut, transforms and normalisation |
| selected_rows, selection | opens OUT and selects rows; by split, filters and frames per video |
| store_datasets | datasets in object stores, and the requests that reading takes |
| decode, jpeg_rows | decodes an image or a mask; takes rows of blocks out of a JPEG, so that no others are decoded |
| crop_mappings | the stored crop resized, or the image of a crop protocol, with its points and mask |
| columns | the columns of a batch besides its images |
| replacement | which row replaces a damaged one |
"""
