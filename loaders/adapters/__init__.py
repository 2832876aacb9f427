"""Applies `face_transform=` and `transform=` to a face; of the latter, one adapter for each kind of transform.

In: a transform, a `Face`, the names of points and mask that a batch delivers. Out: the face, transformed.
Must not know: datasets, batches, processes.

| module | contents |
|---|---|
| by_kind | `Adapter`, what each kind promises; `adapter_of` selects one and validates the transform |
| face_transform | a `face_transform`, which moves points and mask itself |
| functions | Albumentations and functions of one's own, which transform the image alone |
| torchvision_v2 | transforms of `torchvision.transforms.v2`, with which points and mask move |
| v2_tensors | a face's points and mask as tensors that these transforms move |
"""
