"""The dataset format: the contract between precompute and its readers. Columns, manifest, index, image byte ranges.

In: OUT. Out: schema, receipts, manifest, a memory-mapped index, the image codec.
Must not know: how a row was made, Dask, decoders.

| module | what it holds |
|---|---|
| schema | the columns with their units, the versions of the schema, how a file's pages are laid out |
| reserved_names | names that no further column may have |
| out/ | `OutPaths`: where things lie in OUT, and how its files are read and written |
| manifest | `Receipt` of a unit, `Manifest` of the dataset |
| added_columns | sets of columns that `facefeed add` has computed |
| index/, index_builder | `Index`: columns of all rows and where their images lie; builds it from the files |
| index_like | `IndexLike`: what readers ask of an index, of one dataset, of several, or of clips |
| open_dataset | manifest and index of one state |
| stores/ | datasets in object stores: read through a local cache, and written |
| parquet_pages, thrift_compact | byte ranges of images from Parquet's page headers; the encoding of these |
| byte_ranges, stored_images | reads byte ranges; reads and checks the encoded image and mask of a row |
| image_codec | RGB arrays to JPEG, PNG or WebP, and back |
| crops/ | crop protocols: what papers cut around a face |
| frame_numbers | which frames of two videos are the same |
"""
