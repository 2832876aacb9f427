"""What is done to a batch on its device: JPEGs decoded, pictures transformed.

    FaceDataLoader("out", device="cuda", device_transform=[BatchedFlip(), BatchedBrightnessContrast()])

In: JPEGs, or uint8 images, and a seed for each. Out: images that follow from these alone, whatever is in their batch.
Must not know: workers, the order of an epoch.

| module | contents |
|---|---|
| seeded_transform | applies a `device_transform`, so that each image depends on its own seed alone |
| batched | `BatchedTransform`, transforms of whole batches; `BatchedFlip`, `BatchedBrightnessContrast`, `BatchedCrop` |
| jpegs | decodes a batch of JPEGs |
| resize | resizes decoded crops, or cuts the images of a crop protocol from them |
"""

from .batched import BatchedBrightnessContrast, BatchedCrop, BatchedFlip, BatchedTransform

__all__ = ["BatchedBrightnessContrast", "BatchedCrop", "BatchedFlip", "BatchedTransform"]
