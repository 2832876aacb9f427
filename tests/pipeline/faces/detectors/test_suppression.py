"""Of overlapping faces the same are kept, in the same order, as by torchvision and facenet-pytorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from facefeed.pipeline.faces.detectors.cascade.suppression import grouped_nms, nested_nms
from facenet_pytorch.models.utils.detect_face import nms_numpy
from numpy.typing import NDArray
from torchvision.ops import batched_nms

Array = NDArray[Any]


def random_boxes(seed: int) -> tuple[Array, Array, Array]:
    """Up to 60 boxes in up to four groups; many IoUs equal a threshold, and many scores each other."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(0, 60))
    corners, sides = generator.integers(0, 40, (count, 2)), generator.integers(0, 30, (count, 2))
    boxes = np.concatenate([corners, corners + sides], 1).astype(np.float32)
    if seed % 2:
        boxes += generator.random(boxes.shape, np.float32)
        boxes[:, 2:] = np.maximum(boxes[:, :2], boxes[:, 2:])
    return boxes, generator.random(count, np.float32).round(1 + seed % 4), generator.integers(0, 4, count)


@pytest.mark.parametrize("overlap", [0.5, 0.7])
def test_within_groups_the_boxes_are_kept_that_torchvision_keeps_in_its_order(overlap: float) -> None:
    for seed in range(200):
        boxes, scores, groups = random_boxes(seed)
        kept = batched_nms(
            *(torch.from_numpy(array) for array in (boxes.astype(float), scores.astype(float), groups)), overlap
        )
        expected = sorted(kept.tolist(), key=lambda index: (-scores[index], index))
        assert grouped_nms(boxes, scores, groups, overlap).tolist() == expected, seed


def test_of_nested_boxes_those_are_kept_that_facenet_keeps_in_its_order() -> None:
    for seed in range(1, 200):
        boxes, scores, _ = random_boxes(seed)
        if len(boxes):
            assert nested_nms(boxes, scores, 0.7).tolist() == nms_numpy(boxes, scores, 0.7, "Min").tolist(), seed


def test_of_no_boxes_none_are_kept() -> None:
    boxes, scores = np.empty((0, 4), np.float32), np.empty(0, np.float32)
    assert grouped_nms(boxes, scores, np.empty(0, np.int64), 0.5).tolist() == []
    assert nested_nms(boxes, scores, 0.7).tolist() == []
