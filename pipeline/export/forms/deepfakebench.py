"""`deepfakebench`: frames, landmarks, masks and dataset JSONs, as DeepfakeBench's own preprocessing writes them.

    DEST/datasets/rgb/<set>/<class>/frames/<video>/<frame>.png     256 px, aligned to ArcFace's template, scale 1.3
    DEST/datasets/rgb/<set>/<class>/landmarks/<video>/<frame>.npy  five points, px of the frame's image
    DEST/datasets/rgb/<set>/<class>/masks/<video>/<frame>.png      0 or 255; of fakes that have a mask
    DEST/preprocessing/dataset_json/<dataset>.json                 DEST/deepfakebench.yaml

The largest face of a frame is kept, as there. Frames of a folder of images keep their numbers. Its loader
replaces "frames" in a path, so no name of a video has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray

from ...dataset.crops import FaceGeometry, check_coverage, crop_protocol
from ...dataset.crops.geometry import between_pixel_centres
from ...dataset.frame_numbers import effective_frame_numbers
from ...dataset.image_codec import decode_rgb_strictly
from ...errors import CorruptDataError
from ...machine import usable_cores
from ..naming import names_of_texts, unique_names
from ..receipt import PartReceipt
from ..rows import Rows, StoredRows
from .benchmark_sets import NO_COMPRESSION, WITH_COMPRESSION, Video, clean_name, places_of
from .dataset_json import FRAMES, LANDMARKS, MASKS, ExportedVideo, datasets_of, frame_path, write_dataset_json
from .form import OnRows, Part, PartRows, undamaged

PROTOCOL: Final = crop_protocol("deepfakebench")
JSON_FOLDER: Final = "preprocessing/dataset_json"
_ROWS_AT_ONCE: Final = 64
_PIXEL_CENTRE: Final = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """One frame to write. `to_image`: float64 (2, 3), from px of the stored crop to px of the image."""

    row: int
    image: bytes
    mask: bytes | None
    to_image: NDArray[np.float64]
    landmarks: NDArray[np.float64]
    paths: dict[str, Path]


class DeepfakeBench:
    """One part for each Parquet file of OUT. Raises `UsageError` where the stored crops are too narrow."""

    def __init__(self, stored: StoredRows, rows: Rows) -> None:
        self._stored, self._rows = stored, rows
        self.parts = [Part(PurePosixPath(name).stem, part) for name, part in stored.by_file(rows)]
        index = stored.index
        self._kept = _largest_faces(stored, rows[index.numbers("label", rows) >= 0])
        self._is_missing = check_coverage(
            PROTOCOL, index, self._kept, setting="--as deepfakebench", alternative="export in another form"
        )
        self._grades = names_of_texts(index.categories("compression"), clean_name)
        keys, first = np.unique(self._keys(self._kept), return_index=True)
        videos = [self._video(int(row)) for row in self._kept[first]]
        places = places_of(videos, index.labels)
        names = unique_names(_ids(videos), [place.name_group for place in places], clean_name)
        self._videos = {
            int(key): (video, place, name) for key, video, place, name in zip(keys, videos, places, names, strict=True)
        }

    def _keys(self, rows: Rows) -> NDArray[np.int64]:
        """A number for each video and label: a video that is fake in part stands in two classes."""
        index = self._stored.index
        videos, labels = index.codes("video_id", rows).astype(np.int64), index.numbers("label", rows)
        keys: NDArray[np.int64] = videos * len(index.labels) + labels
        return keys

    def _video(self, row: int) -> Video:
        text = partial(self._stored.index.text, row=row)
        label, compression = self._stored.label_name(row), text("compression")
        return Video(
            video_id=str(text("video_id")), split=str(text("split")), label=str(label),
            dataset=text("dataset"), method=text("method"),
            grade=self._grades[compression] if compression else NO_COMPRESSION,
        )  # fmt: skip

    def write(self, part: Part, folder: Path, on_rows: OnRows) -> PartRows:
        """See `Form.write`; decodes and encodes on all cores."""
        written = PartRows()
        labels = self._stored.index.numbers("label", part.rows)
        first, end = np.searchsorted(self._kept, [part.rows[0], part.rows[-1] + 1])  # a file's rows follow each other
        kept = self._kept[first:end]
        if unlabelled := int((labels < 0).sum()):
            written.skipped["unlabelled"] = unlabelled
        if smaller := len(part.rows) - unlabelled - len(kept):
            written.skipped["smaller_face"] = smaller
        if not len(kept):
            return written
        if beyond := int(self._is_missing[first:end].sum()):
            written.notes["beyond_stored_crop"] = beyond
        jobs = self._jobs(kept, folder, written)
        with ThreadPoolExecutor(usable_cores(), thread_name_prefix="facefeed-export") as pool:
            while chunk := [*islice(jobs, _ROWS_AT_ONCE)]:
                for job, is_whole in zip(chunk, pool.map(_write_frame, chunk), strict=True):
                    if not is_whole:
                        written.rows -= 1
                        written.damaged.append(self._stored.index.value("face_id", job.row))
                on_rows(len(chunk))
        return written

    def _jobs(self, kept: Rows, folder: Path, written: PartRows) -> Iterator[_Job]:
        index = self._stored.index
        faces = FaceGeometry.of_rows(index, kept)
        maps = dict(zip(map(int, kept), PROTOCOL.from_stored(faces), strict=True))
        for row, image, mask in undamaged(self._stored, kept, written):
            _, place, name = self._videos[int(self._keys(np.array([row]))[0])]
            frame, to_image = int(effective_frame_numbers(index, np.array([row]))[0]), maps[row]
            path = partial(frame_path, place, name, frame=frame)
            yield _Job(
                row, image, mask, between_pixel_centres(to_image),
                index.points("landmarks", row) @ to_image[:, :2].T + to_image[:, 2] - _PIXEL_CENTRE,
                {
                    FRAMES: folder / path(kind=FRAMES),
                    LANDMARKS: folder / path(kind=LANDMARKS, suffix=".npy"),
                    MASKS: folder / path(kind=MASKS),
                },
            )  # fmt: skip

    def write_closing(self, parts: Sequence[PartReceipt], folder: Path) -> None:
        """See `Form.write_closing`: dataset JSONs, and what to set in DeepfakeBench's configuration."""
        damaged = self._stored.rows_of({face_id for part in parts for face_id in part.damaged})
        videos = [*self._exported(self._kept[~np.isin(self._kept, damaged)])]
        datasets = datasets_of({video.place for video in videos})
        (folder / JSON_FOLDER).mkdir(parents=True)
        for name, labels in datasets.items():
            write_dataset_json(folder / JSON_FOLDER / f"{name}.json", name, labels, videos)
        (folder / "deepfakebench.yaml").write_text(_settings(datasets, videos), encoding="utf-8")

    def _exported(self, rows: Rows) -> Iterator[ExportedVideo]:
        index = self._stored.index
        keys, frames = self._keys(rows), effective_frame_numbers(index, rows)
        has_mask = index.numbers("mask_bytes", rows) > 0
        order = np.lexsort((frames, keys))
        for positions in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            if len(positions):
                video, place, name = self._videos[int(keys[positions[0]])]
                masked = frames[positions[has_mask[positions]]]
                yield ExportedVideo(name, video.split, video.grade, place, frames[positions], masked)


def _ids(videos: Sequence[Video]) -> list[str]:
    """What videos are called by: their ids, with the label where the frames of one have several; all differ."""
    counts = Counter(video.video_id for video in videos)
    used, ids = {*counts}, []
    for video in videos:
        name = video.video_id
        if counts[name] > 1:
            path = PurePosixPath(name)
            name = str(path.with_name(f"{path.stem}_{video.label}{path.suffix}"))
            while name in used:
                name += "_"
        used.add(name)
        ids.append(name)
    return ids


def _largest_faces(stored: StoredRows, rows: Rows) -> Rows:
    """Of each frame the row with the largest box, of equal ones the first track; ascending."""
    index = stored.index
    boxes = index.boxes("box_xyxy", rows)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    videos, frames = index.codes("video_id", rows), index.numbers("frame_index", rows)
    order = np.lexsort((index.numbers("track_id", rows), -areas, frames, videos))
    is_first = np.append(True, (np.diff(videos[order]) != 0) | (np.diff(frames[order]) != 0))[: len(rows)]
    return np.sort(rows[order[is_first]])


def _write_frame(job: _Job) -> bool:
    """Writes image, landmarks and mask of one frame; False, and writes nothing, where the image does not decode."""
    try:
        rgb = decode_rgb_strictly(job.image)
        mask = None if job.mask is None else decode_rgb_strictly(job.mask)[:, :, 0]
    except CorruptDataError:
        return False
    for path in job.paths.values() if mask is not None else (job.paths[FRAMES], job.paths[LANDMARKS]):
        path.parent.mkdir(parents=True, exist_ok=True)
    size = PROTOCOL.size_px, PROTOCOL.size_px
    bgr = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    job.paths[FRAMES].write_bytes(_png(cv2.warpAffine(bgr, job.to_image, size)))
    np.save(job.paths[LANDMARKS], job.landmarks.astype(np.float32))
    if mask is not None:
        # As DeepfakeBench: a pixel that a changed one touches is changed.
        _, binary = cv2.threshold(cv2.warpAffine(mask, job.to_image, size), 1, 255, cv2.THRESH_BINARY)
        job.paths[MASKS].write_bytes(_png(binary))
    return True


def _png(pixels: NDArray[np.uint8]) -> bytes:
    return bytes(cv2.imencode(".png", pixels)[1])


def _settings(datasets: dict[str, list[str]], videos: Sequence[ExportedVideo]) -> str:
    """YAML: what DeepfakeBench's configuration has to say, where it does not by default."""
    settings: dict[str, object] = {
        "lmdb": False,
        "train_dataset": [*datasets][:1],  # others may hold the same frames
        "test_dataset": [*datasets],
        "label_dict": dict(sorted({video.place.label: video.place.number for video in videos}.items())),
    }
    graded = {label for name in WITH_COMPRESSION & datasets.keys() for label in datasets[name]}
    if grades := sorted({video.grade for video in videos if video.place.label in graded}):
        settings["compression"] = grades[0]
    return (
        "# For training/config/train_config.yaml and test_config.yaml (lmdb; label_dict: add what is missing)\n"
        "# and training/config/detector/<detector>.yaml (datasets, compression).\n"
        f"{yaml.safe_dump(settings, sort_keys=False)}"
    )
