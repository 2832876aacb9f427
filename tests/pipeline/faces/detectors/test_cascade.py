"""The cascade's parts, each compared with facenet-pytorch's, so that a difference is found where it arises."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from facefeed.pipeline.faces.detectors.cascade.area_resize import AreaResizer
from facefeed.pipeline.faces.detectors.cascade.boxes import clip_to_frame
from facefeed.pipeline.faces.detectors.cascade.cpu import CpuFrameBatch, CpuRoiBatch
from facefeed.pipeline.faces.detectors.cascade.cuda import DeviceFrameBatch, DeviceNetworks, DeviceRoiBatch
from facefeed.pipeline.faces.detectors.cascade.networks import OpenVinoNetworks
from facefeed.pipeline.faces.detectors.cascade.pyramid import pool_bins, pyramid_scales
from facefeed.pipeline.faces.detectors.cascade.roi_cascade import RoiBatch, detect_in_rois
from facefeed.pipeline.faces.detectors.cascade.rois import Rois
from facefeed.pipeline.faces.detectors.cascade.stages import FrameBatch, face_scores, run_cascade
from facenet_pytorch.models.mtcnn import ONet, PNet, RNet
from facenet_pytorch.models.utils.detect_face import detect_face, generateBoundingBox
from numpy.typing import NDArray
from skimage import data
from torch.nn.functional import interpolate

Rgb = NDArray[np.uint8]


KEPT: list[OpenVinoNetworks] = []
"""For good, as the engines keep theirs: once OpenVINO's networks were released, it hangs in processes forked later."""


@pytest.fixture(scope="module")
def nets() -> OpenVinoNetworks:
    KEPT.append(OpenVinoNetworks())
    return KEPT[0]


@pytest.fixture(scope="module")
def device_nets() -> DeviceNetworks:
    return DeviceNetworks("cpu")


@pytest.fixture(scope="module")
def faces() -> Rgb:
    """Many faces of several sizes, so that some lie on every seam between tiles."""
    astronaut = data.astronaut()[:256, 80:336]
    small = np.ascontiguousarray(astronaut[::2, ::2])
    rows = [np.hstack([astronaut] * 3), np.hstack([small] * 6), np.hstack([np.roll(small, 31, 1)] * 6)]
    return np.vstack(rows)


def noise(height: int, width: int, seed: int = 0) -> Rgb:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def as_torch(rgb: Rgb) -> torch.Tensor:
    return torch.from_numpy(rgb.copy()).permute(2, 0, 1)[None].float()


def resized_by_torch(rgb: Rgb, height: int, width: int) -> NDArray[np.float32]:
    level = (interpolate(as_torch(rgb), size=(height, width), mode="area") - 127.5) * 0.0078125
    resized: NDArray[np.float32] = level[0].permute(1, 2, 0).numpy()
    return resized


def on_the_cpu(rgb: Rgb, nets: OpenVinoNetworks, _: DeviceNetworks) -> FrameBatch:
    return CpuFrameBatch(rgb, nets)


def on_a_device(rgb: Rgb, _: Any, device_nets: DeviceNetworks) -> FrameBatch:
    return DeviceFrameBatch([rgb], device_nets)


FIRST = np.zeros(1, np.int64)
BOTH = pytest.mark.parametrize("batch_of", [on_the_cpu, on_a_device])


@pytest.mark.parametrize(("length", "count"), [(5, 3), (48, 48), (7, 24), (1, 12), (1920, 577), (301, 13)])
def test_bins_are_those_of_torchs_adaptive_pooling(length: int, count: int) -> None:
    row = torch.arange(length, dtype=torch.float64)[None, None]
    starts, ends = pool_bins(length, count)
    means = torch.nn.functional.adaptive_avg_pool1d(row, count)[0, 0]
    np.testing.assert_allclose((starts + ends - 1) / 2, means.numpy())


@pytest.mark.parametrize("size", [(90, 120), (91, 33), (12, 300), (200, 12), (14, 20), (13, 20), (12, 12), (2, 1)])
def test_a_level_of_the_pyramid_is_facenets(size: tuple[int, int]) -> None:
    rgb = np.maximum(noise(217, 331), 250)  # sums as large as can be
    (tops, bottoms), (lefts, rights) = pool_bins(217, size[0]), pool_bins(331, size[1])
    resized = AreaResizer([rgb])(FIRST, tops[None], bottoms[None], lefts[None], rights[None])[0, ..., :3]
    np.testing.assert_allclose(resized, resized_by_torch(rgb, *size), atol=1e-6)


@pytest.mark.parametrize("bin_px", [(1, 257), (257, 1), (1, 258), (258, 1), (16, 16), (16, 17)])
def test_the_largest_bins_of_either_kind_are_averaged_right_where_they_are_white(bin_px: tuple[int, int]) -> None:
    """255 times 257 is the largest sum of 16 bits."""
    rgb = np.full((259, 259, 3), 255, np.uint8)
    rgb[:, :, 1] = 0
    tops, lefts = (np.array([[0, 1]]) for _ in range(2))
    resized = AreaResizer([rgb])(FIRST, tops, tops + bin_px[0], lefts, lefts + bin_px[1])
    np.testing.assert_allclose(
        resized[..., :3], np.broadcast_to([127.5 / 128, -127.5 / 128, 127.5 / 128], (1, 2, 2, 3)), atol=1e-6
    )


@pytest.mark.processes
def test_pixels_are_resized_also_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Numba keeps what it compiled beside the module or at home; a container may have neither."""
    code = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "import numpy as np\n"
        "from facefeed.pipeline.faces.detectors.cascade.area_resize import AreaResizer\n"
        "one, edges = np.full((2, 2, 3), 255, np.uint8), np.array([[0, 1]])\n"
        "print(AreaResizer([one])(np.zeros(1, int), edges, edges + 1, edges, edges + 1)[..., :3].min())\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.stdout.strip() == str(np.float32(127.5 / 128)), result.stderr


def test_each_network_returns_facenets_outputs(nets: OpenVinoNetworks) -> None:
    generator = np.random.default_rng(0)
    for height, width in itertools.product((12, 13, 24, 37), (12, 15, 90)):
        pixels = generator.normal(size=(1, height, width, 4)).astype(np.float32)
        offsets, scores = PNet().eval()(torch.from_numpy(pixels[..., :3]).permute(0, 3, 1, 2))
        outputs = nets.pnet(pixels)
        np.testing.assert_allclose(outputs[..., 2:], offsets.permute(0, 2, 3, 1).detach(), atol=1e-5)
        np.testing.assert_allclose(face_scores(outputs), scores[:, 1].detach(), atol=1e-5)
    for net, expected, side in ((nets.rnet, RNet().eval(), 24), (nets.onet, ONet().eval(), 48)):
        pixels = generator.normal(size=(3, side, side, 4)).astype(np.float32)
        *offsets_and_points, scores = expected(torch.from_numpy(pixels[..., :3]).permute(0, 3, 1, 2))
        logits, *outputs = net(pixels)
        np.testing.assert_allclose(face_scores(logits), scores[:, 1].detach(), atol=1e-5)
        for ours, facenets in zip(outputs, offsets_and_points, strict=True):
            np.testing.assert_allclose(ours, facenets.detach(), atol=1e-5)


@BOTH
@pytest.mark.parametrize("scale", [1.0, 0.709, 0.6, 0.31])
def test_no_candidate_is_lost_or_doubled_where_tiles_meet(
    batch_of: Any, scale: float, faces: Rgb, nets: OpenVinoNetworks, device_nets: DeviceNetworks
) -> None:
    height, width = (int(side * scale + 1) for side in faces.shape[:2])
    level = torch.from_numpy(resized_by_torch(faces, height, width)).permute(2, 0, 1)[None]
    offsets, scores = PNet().eval()(level)
    boxes, _ = generateBoundingBox(offsets.detach(), scores[:, 1].detach(), 1.0, 0.6)
    candidates = batch_of(faces, nets, device_nets).pnet([(height, width)])
    assert len(boxes) > 50
    expected = ((boxes[:, [1, 0]] - 1) / 2).long()
    assert np.stack([candidates.rows, candidates.columns], 1).tolist() == expected.tolist()
    np.testing.assert_allclose(candidates.scores, boxes[:, 4], atol=1e-5)
    np.testing.assert_allclose(candidates.offsets, boxes[:, 5:], atol=1e-5)


@BOTH
def test_windows_are_resized_and_scored_as_by_facenet(
    batch_of: Any, faces: Rgb, nets: OpenVinoNetworks, device_nets: DeviceNetworks
) -> None:
    height, width = faces.shape[:2]
    generator = np.random.default_rng(0)
    corners = generator.integers(0, (width - 2, height - 2), (75, 2))
    sizes = generator.integers(1, 200, (75, 2))
    inside = np.hstack([corners, np.minimum(corners + sizes, (width, height))])
    pixels = batch_of(faces, nets, device_nets)
    frames = np.zeros(75, np.int64)
    for network, expected, side in ((pixels.rnet, RNet().eval(), 24), (pixels.onet, ONet().eval(), 48)):
        crops = [resized_by_torch(faces[y0:y1, x0:x1], side, side) for x0, y0, x1, y1 in inside]
        *outputs, scores = expected(torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2))
        ours, *rest = network(frames, inside)
        np.testing.assert_allclose(ours, scores[:, 1].detach(), atol=2e-5)
        for actual, reference in zip(rest, outputs, strict=True):
            np.testing.assert_allclose(actual, reference.detach(), atol=2e-5)


def test_a_batch_on_a_device_gives_the_results_of_single_frames(faces: Rgb, device_nets: DeviceNetworks) -> None:
    frames = [faces, np.ascontiguousarray(faces[:, ::-1]), noise(*faces.shape[:2]), faces // 2]
    together = run_cascade(DeviceFrameBatch(frames, device_nets), 40)
    alone = [run_cascade(DeviceFrameBatch([rgb], device_nets), 40)[0] for rgb in frames]
    assert len(together[0][0]) > 5
    for some, others in zip(together, alone, strict=True):
        for batched, single in zip(some, others, strict=True):
            np.testing.assert_allclose(batched, single, atol=1e-3)


@BOTH
@pytest.mark.parametrize("min_face_px", [20, 40])
def test_the_whole_cascade_finds_what_facenets_finds_in_its_order(
    batch_of: Any, min_face_px: int, faces: Rgb, nets: OpenVinoNetworks, device_nets: DeviceNetworks
) -> None:
    expected = [kind().eval() for kind in (PNet, RNet, ONet)]
    with torch.inference_mode():
        (boxes,), (points,) = detect_face(faces, min_face_px, *expected, [0.6, 0.7, 0.7], 0.709, torch.device("cpu"))
    ((detected, scores, landmarks),) = run_cascade(batch_of(faces, nets, device_nets), min_face_px)
    assert len(boxes) > 5
    np.testing.assert_allclose(detected, boxes[:, :4].astype(np.float32), atol=2e-3)
    np.testing.assert_allclose(scores, boxes[:, 4].astype(np.float32), atol=1e-5)
    np.testing.assert_allclose(landmarks, points.astype(np.float32), atol=2e-3)


def rois_on_the_cpu(frames: list[Rgb], rois: Rois, nets: OpenVinoNetworks, _: DeviceNetworks) -> RoiBatch:
    return CpuRoiBatch(frames, rois, nets)


def rois_on_a_device(frames: list[Rgb], _: Rois, __: Any, device_nets: DeviceNetworks) -> RoiBatch:
    return DeviceRoiBatch(frames, device_nets)


BOTH_ROI = pytest.mark.parametrize("batch_of", [rois_on_the_cpu, rois_on_a_device])


def rois_at(frames: Sequence[int], boxes: Any) -> Rois:
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    return Rois(np.array(frames, np.int64), boxes, np.ones(len(boxes), bool))


@BOTH_ROI
@pytest.mark.parametrize("shift", [0.0, 0.2, -0.3])
def test_detections_in_rois_are_those_of_the_full_search(
    batch_of: Any, shift: float, faces: Rgb, nets: OpenVinoNetworks, device_nets: DeviceNetworks
) -> None:
    """Of many faces of several sizes, at the border too, in two frames; a place may be off by a part of the face."""
    frames = [faces, np.ascontiguousarray(faces[:, ::-1])]
    whole = [run_cascade(CpuFrameBatch(rgb, nets), 20)[0] for rgb in frames]
    sides = [(boxes[:, 2:] - boxes[:, :2]).repeat(2, 1) for boxes, *_ in whole]
    boxes = np.concatenate([boxes + shift * side for (boxes, *_), side in zip(whole, sides, strict=True)])
    rois = rois_at(np.repeat([0, 1], [len(detections[0]) for detections in whole]), boxes)
    near = detect_in_rois(batch_of(frames, rois, nets, device_nets), rois, 20)
    for (boxes, scores, landmarks), (near_boxes, _, near_landmarks) in zip(whole, near, strict=True):
        apart = np.abs(boxes[:, None] - near_boxes).max(-1) / (boxes[:, 2] - boxes[:, 0])[:, None]
        sure = scores > 0.95
        assert sure.sum() > 5
        assert (apart.min(axis=1)[sure] < 0.25).all()
        eyes = np.linalg.norm(landmarks[:, 0] - landmarks[:, 1], axis=-1)
        off = np.linalg.norm(landmarks - near_landmarks[apart.argmin(axis=1)], axis=-1).mean(-1) / eyes
        assert off[sure].mean() < 0.05


@BOTH_ROI
def test_rois_without_a_face_give_no_detections(
    batch_of: Any, nets: OpenVinoNetworks, device_nets: DeviceNetworks
) -> None:
    frames = [np.full((60, 80, 3), 90, np.uint8), noise(60, 80)]
    rois = rois_at(
        [0, 1, 1, 1, 1], [(10, 10, 50, 50), (-40, -40, 0, 0), (70, 50, 400, 300), (500, 5, 540, 45), (5, 5, 5, 5)]
    )
    near = detect_in_rois(batch_of(frames, rois, nets, device_nets), rois, 20)
    assert [len(boxes) for boxes, *_ in near] == [0, 0]


def test_a_window_outside_of_the_frame_is_empty_however_far_it_lies() -> None:
    far = [[-50, 5, -10, 20], [5, 70, 20, 90], [1e30, 5, 2e30, 9], [-1e30, 1, 1e30, 50], [float("nan")] * 4]
    first, second, third, all_of_it, none = clip_to_frame(np.array(far, np.float32), 80, 60)
    for window in (first, second, third, none):
        assert (window[2:] <= window[:2]).any()
    assert all_of_it.tolist() == [0, 0, 80, 50]


def test_the_levels_end_where_a_face_would_fill_the_frame() -> None:
    assert pyramid_scales(39, 400, 40) == []
    assert pyramid_scales(40, 400, 40) == [0.3]
    assert len(pyramid_scales(1080, 1920, 20)) == 12
