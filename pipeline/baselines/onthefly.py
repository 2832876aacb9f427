"""The baseline dataset: decodes, detects with MTCNN and crops each face on the fly, inside `__getitem__`."""

from __future__ import annotations

import gc
import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import av.container
import av.error
import av.video
import cv2
import numpy as np

from ..dataset.index import Index
from ..dataset.manifest import Manifest
from ..dataset.out import OutPaths
from ..dataset.schema import SPLITS, WHOLE_FRAME_HULL
from ..dataset.stores.address import is_address, without_credentials
from ..dataset.stores.opening import StoreOptions, open_store
from ..errors import InputError, UsageError
from ..faces import FaceDetector, Faces
from ..faces.detectors.by_name import whole_frame_detector
from ..faces.detectors.mtcnn import MTCNNDetector
from ..faces.geometry.alignment import tilt_degrees
from ..faces.geometry.crop import CropSquare
from ..faces.geometry.overlap import box_iou
from ..planning.plan import Plan
from ..sources.layouts.dataset_json import possible_roots
from ..sources.media.media_files import path_exists
from ..video import DecoderLimits
from ..video.decoder.demuxer import choose_stream, error_text, open_video
from ..video.decoder.pixels import Rgb, RgbConverter
from ..video.decoder.sniffing import MediaFile, open_media_file
from ..video.decoder.stills.images import read_image
from ..video.image_folder import list_frames

if TYPE_CHECKING:
    import torch

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
_MAX_PIXELS = DecoderLimits().max_pixels
_STEPS_BACK_SECONDS = (0, 1)
"""Seek targets before the frame's time; where a seek lands after the frame (MPEG-TS), the next one is tried."""


class OnTheFlyFaces:
    """The faces of a finished OUT, each recomputed from its video: `(image, label)`, as `FaceDataset` gives it.

    image: float32 (3, `image_size`, `image_size`), RGB, normalised by ImageNet's mean and standard deviation; but for
    the stored crop's JPEG the pixels that a loader of OUT gives for the same position. label: int, -1 where unknown.

    Per item: open the video below `src`, seek to the key frame before the wanted frame, decode up to it, detect, take
    of the faces found the one that overlaps the row's box most, cut it with OUT's margin, resize. So a careful person
    writes it: the detector is made once a process, nothing is kept from item to item, since shuffled items seldom
    share a video. The rows say which frames and which faces, and of a smoothed OUT which squares, since an item sees
    one frame alone; that a video of the wild may be broken in ways that take its decoder down does not count here,
    since rows come of sound frames alone.

    `src`: as it was given to `precompute`. `out`: a folder, or the address of a store.
    `split`: None for all. `detector`: None for MTCNN as OUT's settings have it,
    on the CPU: processes that torch forks cannot use CUDA. With `multiprocessing_context="spawn"` or no workers it may
    be `MTCNNDetector(device="cuda")`. Where another found OUT's faces, give that one, as `YuNetDetector("FILE.onnx")`.

    A map-style dataset for torch's DataLoader, which asks for no base class; torch comes with the first item.
    Picklable. Raises `UsageError` where SRC or OUT is not what it should be, and where a face cannot be made again.
    """

    def __init__(
        self,
        src: str | Path,
        out: str | Path,
        split: str | None = "train",
        image_size: int = 224,
        *,
        detector: FaceDetector | None = None,
    ) -> None:
        if split is not None and split not in SPLITS:
            raise UsageError(f"split={split!r}: must be one of {', '.join(SPLITS)}, or None for all")
        if image_size < 1:
            raise UsageError(f"image_size={image_size}: must be at least 1 px; try 224")
        self.src, self.out = Path(src).resolve(), without_credentials(out if is_address(out) else Path(out).resolve())
        if not self.src.exists():
            raise UsageError(f"{src}: must be the source that {self.out} was made from; it is not there")
        self.split, self.image_size = split, image_size
        self._store = open_store(str(out), StoreOptions()) if is_address(out) else None
        folder = Path(out).resolve() if self._store is None else self._store.folder
        config = Manifest.read(folder).config
        self.detector_fingerprint = str(config["detector"])
        self.index = Index(folder) if self._store is None else self._store.index
        self.src = _root_of(self.src, folder, self._video(0))
        self.labels = self.index.labels
        self.margin, self.align, self.smooth = float(config["margin"]), bool(config["align"]), bool(config["smooth"])
        self.detector = detector or MTCNNDetector(min_face_px=max(config["min_face_px"], 12), device="cpu")
        every = np.arange(len(self.index), dtype=np.uint32)
        self._rows = every if split is None else self.index.rows_where("split", split)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        import torch  # noqa: PLC0415 (2 s, and only who takes an item needs it)

        row = int(self._rows[position])
        try:
            rgb = self._frame(row)
        except InputError as error:
            raise UsageError(f"{self._name(row)}: {error}; {self._remedy()}") from error
        pixels = torch.from_numpy(self._crop(rgb, row)).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (_MEAN, _STD))
        return (pixels - mean) / std, int(self.index.number("label", row))

    def _frame(self, row: int) -> Rgb:
        frame_index, pts_seconds = (self.index.value(name, row) for name in ("frame_index", "pts_seconds"))
        rgb = read_frame(self.src / self._video(row), frame_index, pts_seconds, self.src)
        gc.collect(1)  # a frame that was asked which way is up holds itself, and is garbage only for the collector
        return rgb

    def _crop(self, rgb: Rgb, row: int) -> Rgb:
        box = self.index.box("box_xyxy", row)
        (found,) = self._detector_of(row).detect([rgb])
        overlaps = box_iou(found.boxes_xyxy, [box])[:, 0]
        if not overlaps.any():
            where = f"no face that overlaps {[round(side) for side in box]}" if len(found) else "no face"
            raise UsageError(f"{self._name(row)}: {where} was found where OUT has one; {self._remedy()}")
        crop, _ = self._square(row, found.select(np.array([overlaps.argmax()]))).crop(rgb, self.image_size)
        if len(crop) < self.image_size:
            crop = np.asarray(cv2.resize(crop, (self.image_size, self.image_size)), np.uint8)
        return crop

    def _square(self, row: int, face: Faces) -> CropSquare:
        if self.smooth:  # which takes the frames before and after, which an item does not see
            left, top, right, _ = (int(edge) for edge in self.index.box("crop_xyxy", row))
            return CropSquare(left, top, right - left, self.index.value("crop_degrees", row))
        degrees = tilt_degrees(face.landmarks[0]) if self.align else 0.0
        return CropSquare.around(face.boxes_xyxy[0], 0.0 if self._is_whole_frame(row) else self.margin, degrees)

    def _detector_of(self, row: int) -> FaceDetector:
        return whole_frame_detector() if self._is_whole_frame(row) else self.detector

    def _is_whole_frame(self, row: int) -> bool:
        return self.index.text("hull_method", row) == WHOLE_FRAME_HULL

    def _video(self, row: int) -> str:
        return str(self.index.text("video_id", row))

    def _name(self, row: int) -> str:
        return f"{self._video(row)}, frame {self.index.value('frame_index', row)}"

    def _remedy(self) -> str:
        text = f"was {self.out} made from {self.src} as it is now, with {self.detector!r}?"
        if self.detector.fingerprint != self.detector_fingerprint:
            text += f" Its faces were found by {self.detector_fingerprint}: give that detector"
        return text


def _root_of(src: Path, out: Path, video_id: str) -> Path:
    """The folder that ids of inputs, such as `video_id`, are relative to.

    It is `src`, or what a table lies in. For a part of FaceForensics++ and for a dataset JSON it is another folder,
    which the plan states; of a dataset in a store, the plan is not here.
    """
    folder = src if src.is_dir() else src.parent
    if path_exists(folder / video_id) or not OutPaths(out).plan.is_dir():
        return folder
    for part in reversed(Plan.load(OutPaths(out)).parts):
        root = Path(part.source)
        if part.source and (src.is_relative_to(root) or root in possible_roots(src)):
            return root
    return folder


def read_frame(path: Path, frame_index: int, pts_seconds: float, root: Path) -> Rgb:
    """One frame of a video, uint8 (H, W, 3), upright; the picture itself where the file is one. Raises `InputError`.

    The frame is the one that is shown at `pts_seconds`; where no frame has that time, times do not rise, or the file
    cannot be searched, the `frame_index`-th. Of a folder of images it is the `frame_index`-th, too; links among these
    are followed into `root`.
    """
    if path.is_dir():
        names = list_frames(path, (root,))
        if frame_index >= len(names):
            raise InputError("no_frames", f"it has no image {frame_index}")
        path = path / names[frame_index]
    content = open_media_file(str(path))
    try:
        if content.kind != "video":
            return read_image(content, _MAX_PIXELS)
        try:
            found = _by_time(content, pts_seconds)
            return _by_number(content, frame_index) if found is None else found
        except av.error.FFmpegError as error:
            raise InputError("decode_error", error_text(error)) from error
    finally:
        os.close(content.fd)


def _by_time(content: MediaFile, pts_seconds: float) -> Rgb | None:
    with open_video(content, _MAX_PIXELS) as container:
        stream = choose_stream(container)
        if container.format.name == "avi" and stream.codec_context.has_b_frames:
            return None  # AVI stores no times: those made up after a seek may rise, and be of other frames
        per_second = 1 / stream.time_base if stream.time_base else 1
        pts = round(pts_seconds * per_second)
        for back_seconds in _STEPS_BACK_SECONDS:
            try:
                container.seek(pts - round(back_seconds * per_second), stream=stream)
            except av.error.PermissionError:  # what FFmpeg says of a file that it cannot search
                return None
            before = None
            for frame in container.decode(stream):
                if frame.pts is None or (before is not None and frame.pts <= before):
                    return None  # as in AVI, which stores no times, and those that are made up need not rise
                if frame.pts == pts:
                    return _upright(frame, stream)
                if frame.pts > pts:
                    break
                before = frame.pts
    return None


def _by_number(content: MediaFile, frame_index: int) -> Rgb:
    with open_video(content, _MAX_PIXELS) as container:
        stream = choose_stream(container)
        frame = next(islice(container.decode(stream), frame_index, None), None)
        if frame is None:
            raise InputError("no_frames", f"it has no frame {frame_index}")
        return _upright(frame, stream)


def _upright(frame: av.video.VideoFrame, stream: av.video.VideoStream) -> Rgb:
    return RgbConverter(_MAX_PIXELS).convert(frame, stream.sample_aspect_ratio)
