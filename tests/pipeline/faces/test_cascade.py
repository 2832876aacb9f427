"""The parts of MTCNN beside facenet-pytorch's own, each alone, so that a difference is found where it arises."""

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
from facefeed.pipeline.faces.detectors.cascade.area_resize import PixelMeans
from facefeed.pipeline.faces.detectors.cascade.boxes import suppressed, windows
from facefeed.pipeline.faces.detectors.cascade.cpu import CpuNear, CpuPixels
from facefeed.pipeline.faces.detectors.cascade.cuda import DeviceNear, DeviceNetworks, DevicePixels
from facefeed.pipeline.faces.detectors.cascade.networks import Networks
from facefeed.pipeline.faces.detectors.cascade.pyramid import bins, scales
from facefeed.pipeline.faces.detectors.cascade.roi_cascade import NearPixels, find_near
from facefeed.pipeline.faces.detectors.cascade.rois import Places
from facefeed.pipeline.faces.detectors.cascade.stages import Pixels, find_faces
from facenet_pytorch.models.mtcnn import ONet, PNet, RNet
from facenet_pytorch.models.utils.detect_face import detect_face, generateBoundingBox
from numpy.typing import NDArray
from skimage import data
from torch.nn.functional import interpolate

Rgb = NDArray[np.uint8]


KEPT: list[Networks] = []
"""For good, as the engines keep theirs: once OpenVINO's networks were let go, it hangs in processes forked later."""


@pytest.fixture(scope="module")
def nets() -> Networks:
    KEPT.append(Networks())
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


def on_the_cpu(rgb: Rgb, nets: Networks, _: DeviceNetworks) -> Pixels:
    return CpuPixels(rgb, nets)


def on_a_device(rgb: Rgb, _: Any, device_nets: DeviceNetworks) -> Pixels:
    return DevicePixels([rgb], device_nets)


FIRST = np.zeros(1, np.int64)
BOTH = pytest.mark.parametrize("pixels_of", [on_the_cpu, on_a_device])


@pytest.mark.parametrize(("length", "count"), [(5, 3), (48, 48), (7, 24), (1, 12), (1920, 577), (301, 13)])
def test_bins_are_those_of_torchs_adaptive_pooling(length: int, count: int) -> None:
    row = torch.arange(length, dtype=torch.float64)[None, None]
    starts, ends = bins(length, count)
    means = torch.nn.functional.adaptive_avg_pool1d(row, count)[0, 0]
    np.testing.assert_allclose((starts + ends - 1) / 2, means.numpy())


@pytest.mark.parametrize("size", [(90, 120), (91, 33), (12, 300), (200, 12), (14, 20), (13, 20), (12, 12), (2, 1)])
def test_a_level_of_the_pyramid_is_facenets(size: tuple[int, int]) -> None:
    rgb = np.maximum(noise(217, 331), 250)  # sums as large as can be
    (tops, bottoms), (lefts, rights) = bins(217, size[0]), bins(331, size[1])
    made = PixelMeans([rgb])(FIRST, tops[None], bottoms[None], lefts[None], rights[None])[0, ..., :3]
    np.testing.assert_allclose(made, resized_by_torch(rgb, *size), atol=1e-6)


@pytest.mark.parametrize("bin_px", [(1, 257), (257, 1), (1, 258), (258, 1), (16, 16), (16, 17)])
def test_the_largest_bins_of_either_kind_are_averaged_right_where_they_are_white(bin_px: tuple[int, int]) -> None:
    """255 times 257 is the largest sum of 16 bits."""
    rgb = np.full((259, 259, 3), 255, np.uint8)
    rgb[:, :, 1] = 0
    tops, lefts = (np.array([[0, 1]]) for _ in range(2))
    made = PixelMeans([rgb])(FIRST, tops, tops + bin_px[0], lefts, lefts + bin_px[1])
    np.testing.assert_allclose(
        made[..., :3], np.broadcast_to([127.5 / 128, -127.5 / 128, 127.5 / 128], (1, 2, 2, 3)), atol=1e-6
    )


def test_pixels_are_resized_also_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Numba keeps what it compiled beside the module or at home; a container may have neither."""
    code = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "import numpy as np\n"
        "from facefeed.pipeline.faces.detectors.cascade.area_resize import PixelMeans\n"
        "one, edges = np.full((2, 2, 3), 255, np.uint8), np.array([[0, 1]])\n"
        "print(PixelMeans([one])(np.zeros(1, int), edges, edges + 1, edges, edges + 1)[..., :3].min())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == str(np.float32(127.5 / 128)), done.stderr


def test_each_network_says_what_facenets_says(nets: Networks) -> None:
    generator = np.random.default_rng(0)
    for height, width in itertools.product((12, 13, 24, 37), (12, 15, 90)):
        pixels = generator.normal(size=(1, height, width, 4)).astype(np.float32)
        offsets, scores = PNet().eval()(torch.from_numpy(pixels[..., :3]).permute(0, 3, 1, 2))
        said = nets.pnet(pixels)
        np.testing.assert_allclose(said[..., 2:], offsets.permute(0, 2, 3, 1).detach(), atol=1e-5)
        said_scores = torch.softmax(torch.from_numpy(said[..., :2].copy()), -1)
        np.testing.assert_allclose(said_scores, scores.permute(0, 2, 3, 1).detach(), atol=1e-5)
    for net, theirs, side in ((nets.rnet, RNet().eval(), 24), (nets.onet, ONet().eval(), 48)):
        pixels = generator.normal(size=(3, side, side, 4)).astype(np.float32)
        *offsets_and_points, scores = theirs(torch.from_numpy(pixels[..., :3]).permute(0, 3, 1, 2))
        logits, *said = net(pixels)
        np.testing.assert_allclose(torch.softmax(torch.from_numpy(logits), 1), scores.detach(), atol=1e-5)
        for ours, facenets in zip(said, offsets_and_points, strict=True):
            np.testing.assert_allclose(ours, facenets.detach(), atol=1e-5)


@BOTH
@pytest.mark.parametrize("scale", [1.0, 0.709, 0.6, 0.31])
def test_no_candidate_is_lost_or_doubled_where_tiles_meet(
    pixels_of: Any, scale: float, faces: Rgb, nets: Networks, device_nets: DeviceNetworks
) -> None:
    height, width = (int(side * scale + 1) for side in faces.shape[:2])
    level = torch.from_numpy(resized_by_torch(faces, height, width)).permute(2, 0, 1)[None]
    offsets, scores = PNet().eval()(level)
    boxes, _ = generateBoundingBox(offsets.detach(), scores[:, 1].detach(), 1.0, 0.6)
    found = pixels_of(faces, nets, device_nets).pnet([(height, width)])
    assert len(boxes) > 50
    theirs = ((boxes[:, [1, 0]] - 1) / 2).long()
    assert torch.stack([found.rows, found.columns], 1).tolist() == theirs.tolist()
    np.testing.assert_allclose(found.scores, boxes[:, 4], atol=1e-5)
    np.testing.assert_allclose(found.offsets, boxes[:, 5:], atol=1e-5)


@BOTH
def test_windows_are_cut_and_judged_as_facenet_does(
    pixels_of: Any, faces: Rgb, nets: Networks, device_nets: DeviceNetworks
) -> None:
    height, width = faces.shape[:2]
    generator = np.random.default_rng(0)
    corners = generator.integers(0, (width - 2, height - 2), (75, 2))
    sizes = generator.integers(1, 200, (75, 2))
    inside = np.hstack([corners, np.minimum(corners + sizes, (width, height))])
    pixels = pixels_of(faces, nets, device_nets)
    frames = torch.zeros(75, dtype=torch.long)
    for judge, theirs, side in ((pixels.rnet, RNet().eval(), 24), (pixels.onet, ONet().eval(), 48)):
        crops = [resized_by_torch(faces[y0:y1, x0:x1], side, side) for x0, y0, x1, y1 in inside]
        *said, scores = theirs(torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2))
        ours, *rest = judge(frames, torch.from_numpy(inside))
        np.testing.assert_allclose(ours, scores[:, 1].detach(), atol=2e-5)
        for one, other in zip(rest, said, strict=True):
            np.testing.assert_allclose(one, other.detach(), atol=2e-5)


def test_frames_together_on_a_device_give_what_each_gives_alone(faces: Rgb, device_nets: DeviceNetworks) -> None:
    frames = [faces, np.ascontiguousarray(faces[:, ::-1]), noise(*faces.shape[:2]), faces // 2]
    with torch.inference_mode():
        together = find_faces(DevicePixels(frames, device_nets), 40)
        alone = [find_faces(DevicePixels([rgb], device_nets), 40)[0] for rgb in frames]
    assert len(together[0][0]) > 5
    for some, others in zip(together, alone, strict=True):
        for one, other in zip(some, others, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-3)


@BOTH
@pytest.mark.parametrize("min_face_px", [20, 40])
def test_the_whole_cascade_finds_what_facenets_finds_in_its_order(
    pixels_of: Any, min_face_px: int, faces: Rgb, nets: Networks, device_nets: DeviceNetworks
) -> None:
    theirs = [kind().eval() for kind in (PNet, RNet, ONet)]
    with torch.inference_mode():
        (boxes,), (points,) = detect_face(faces, min_face_px, *theirs, [0.6, 0.7, 0.7], 0.709, torch.device("cpu"))
        ((found, scores, landmarks),) = find_faces(pixels_of(faces, nets, device_nets), min_face_px)
    assert len(boxes) > 5
    np.testing.assert_allclose(found, boxes[:, :4].astype(np.float32), atol=2e-3)
    np.testing.assert_allclose(scores, boxes[:, 4].astype(np.float32), atol=1e-5)
    np.testing.assert_allclose(landmarks, points.astype(np.float32), atol=2e-3)


def near_on_the_cpu(frames: list[Rgb], places: Places, nets: Networks, _: DeviceNetworks) -> NearPixels:
    return CpuNear(frames, places, nets)


def near_on_a_device(frames: list[Rgb], _: Places, __: Any, device_nets: DeviceNetworks) -> NearPixels:
    return DeviceNear(frames, device_nets)


BOTH_NEAR = pytest.mark.parametrize("near_of", [near_on_the_cpu, near_on_a_device])


def at(frames: Sequence[int], boxes: Any) -> Places:
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    return Places(np.array(frames, np.int64), boxes, np.ones(len(boxes), bool))


@BOTH_NEAR
@pytest.mark.parametrize("shift", [0.0, 0.2, -0.3])
def test_near_a_place_the_faces_are_those_of_the_whole_search(
    near_of: Any, shift: float, faces: Rgb, nets: Networks, device_nets: DeviceNetworks
) -> None:
    """Of many faces of several sizes, at the border too, in two frames; a place may be off by a part of the face."""
    frames = [faces, np.ascontiguousarray(faces[:, ::-1])]
    with torch.inference_mode():
        whole = [find_faces(CpuPixels(rgb, nets), 20)[0] for rgb in frames]
        sides = [(boxes[:, 2:] - boxes[:, :2]).repeat(2, 1) for boxes, *_ in whole]
        boxes = np.concatenate([boxes + shift * side for (boxes, *_), side in zip(whole, sides, strict=True)])
        places = at(np.repeat([0, 1], [len(one[0]) for one in whole]), boxes)
        near = find_near(near_of(frames, places, nets, device_nets), places, 20)
    for (boxes, scores, landmarks), (near_boxes, _, near_landmarks) in zip(whole, near, strict=True):
        apart = np.abs(boxes[:, None] - near_boxes).max(-1) / (boxes[:, 2] - boxes[:, 0])[:, None]
        sure = scores > 0.95
        assert sure.sum() > 5
        assert (apart.min(axis=1)[sure] < 0.25).all()
        eyes = np.linalg.norm(landmarks[:, 0] - landmarks[:, 1], axis=-1)
        off = np.linalg.norm(landmarks - near_landmarks[apart.argmin(axis=1)], axis=-1).mean(-1) / eyes
        assert off[sure].mean() < 0.05


@BOTH_NEAR
def test_near_places_without_a_face_nothing_is_found(near_of: Any, nets: Networks, device_nets: DeviceNetworks) -> None:
    frames = [np.full((60, 80, 3), 90, np.uint8), noise(60, 80)]
    places = at(
        [0, 1, 1, 1, 1], [(10, 10, 50, 50), (-40, -40, 0, 0), (70, 50, 400, 300), (500, 5, 540, 45), (5, 5, 5, 5)]
    )
    with torch.inference_mode():
        assert [len(found) for found, *_ in find_near(near_of(frames, places, nets, device_nets), places, 20)] == [0, 0]


def test_a_window_outside_of_the_frame_is_empty_however_far_it_lies() -> None:
    far = [[-50, 5, -10, 20], [5, 70, 20, 90], [1e30, 5, 2e30, 9], [-1e30, 1, 1e30, 50], [float("nan")] * 4]
    first, second, third, all_of_it, none = windows(torch.tensor(far), torch.tensor([80, 60]))
    for one in (first, second, third, none):
        assert (one[2:] <= one[:2]).any()
    assert all_of_it.tolist() == [0, 0, 80, 50]


def test_of_overlapping_boxes_the_surer_stays_but_only_within_a_group() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [0, 0, 10, 10], [50, 50, 60, 60]])
    scores, groups = torch.tensor([0.7, 0.8, 0.9, 0.6]), torch.tensor([0, 0, 1, 0])
    assert suppressed(boxes, scores, groups, 0.5).tolist() == [2, 1, 3]
    nothing = torch.empty(0)
    assert suppressed(nothing.reshape(0, 4), nothing, nothing.long(), 0.5).tolist() == []


def test_the_levels_end_where_a_face_would_fill_the_frame() -> None:
    assert scales(39, 400, 40) == []
    assert scales(40, 400, 40) == [0.3]
    assert len(scales(1080, 1920, 20)) == 12
