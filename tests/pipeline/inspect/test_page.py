"""What a user sees on the page of a dataset: in a browser without a network, whatever the dataset is like."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import assets_dataset
import cv2
import numpy as np
import pytest
from assets_browser import LAPTOP, PHONE, PROGRAMS, Seen, render_pages
from assets_dataset import NO_ROWS, Clip, make_dataset, open_run_state
from assets_paths import needs_program
from facefeed.pipeline.commit.finalize import publish_manifest
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.schema import ROW_GROUP_ROWS
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.inspect.figures.pictures import PictureReader
from facefeed.pipeline.inspect.figures.selection import track_strips
from facefeed.pipeline.inspect.inspection import Inspection, inspect_dataset
from facefeed.pipeline.inspect.page import write_page
from facefeed.pipeline.inspect.statistics.videos import VideoTable
from facefeed.pipeline.planning.options import JobSpec
from numpy.typing import NDArray

NASTY = "<script>alert(1)<&\"'`{{7*7}}"
CLIPS = (
    Clip(f"real/{NASTY}.mp4", 70), Clip(f"fake/{NASTY}-<b>swap.mp4", 70), Clip("real/bea.mp4", 9),
    Clip("fake/bea-talk.mp4", 9), Clip(f"real/{NASTY}2.mp4", 3, "truncated"),
)  # fmt: skip
FAILURES = 10_000
EVIL = "</script><script>alert(2)</script><!--"


def picture_of(clip: Clip, number: int) -> NDArray[np.uint8]:
    """A still scene of noise; a fake shows its source's, with other colours in the left face but every fourth frame."""
    if clip.ends == "no_faces":
        return np.zeros((48, 64, 3), np.uint8)
    source = clip.name.partition("-")[0].replace("fake/", "real/").removesuffix(".mp4")
    coarse = np.random.default_rng(zlib.crc32(source.encode())).integers(1, 250, (6, 8, 3), np.uint8)
    frame = np.asarray(cv2.resize(coarse, (64, 48), interpolation=cv2.INTER_LINEAR), np.uint8) + np.uint8(number % 3)
    if clip.name.startswith("fake/") and number % 4:
        frame[8:24, 10:22] = 255 - frame[8:24, 10:22]
    return frame


@pytest.fixture(scope="module")
def filmed() -> Iterator[pytest.MonkeyPatch]:
    """Datasets made meanwhile have fakes that show what their source shows, two faces in each frame, and masks."""
    with pytest.MonkeyPatch.context() as patch:
        boxes = ((0.1, 0.1, 0.4, 0.6), (0.55, 0.3, 0.9, 0.9))
        patch.setattr(assets_dataset, "_picture", picture_of)
        patch.setattr(assets_dataset, "_MIDDLE", FixedBoxDetector(boxes))
        patch.setattr(JobSpec, "file_exists", lambda *_: True)
        yield patch


@pytest.fixture(scope="module")
def out(filmed: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / NASTY.replace("/", "")
    make_dataset(out, (("train", CLIPS), ("val", (Clip("real/dora.mp4", 2),))))
    return out


@pytest.fixture(scope="module")
def inspection(out: Path) -> Inspection:
    return inspect_dataset(out)


@pytest.fixture(scope="module")
def pages(out: Path, inspection: Inspection, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    make_dataset(folder / "none", (("train", NO_ROWS),))
    inspections = {
        "whole": inspection,
        "empty": inspect_dataset(folder / "none"),
        "failures": inspect_dataset(with_failures(out, folder / "many")),
    }
    paths = {name: folder / f"{name}.html" for name in inspections}
    for name, inspected in inspections.items():
        assert write_page(inspected, paths[name]) == paths[name].stat().st_size < 5e6
    return paths


def with_failures(out: Path, copy: Path) -> Path:
    """A copy in which very many inputs were refused."""
    assets_dataset.copy_dataset(out, copy)
    manifest = Manifest.read(copy)
    refused = [
        {"video_id": f"broken/{number:05}.mp4", "reason": "not_video", "detail": f"holds no media at all: {'x' * 80}"}
        for number in range(FAILURES)
    ]
    refused[-1]["video_id"] = EVIL
    inputs = {**manifest.inputs, "failed": {**manifest.inputs["failed"], "not_video": FAILURES}}
    publish_manifest(open_run_state(copy).paths, replace(manifest, refused=manifest.refused + refused, inputs=inputs))
    return copy


class Page(HTMLParser):
    """What a browser would find on a page: its tags, and the words of each section by its id."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, str, dict[str, str]]] = []
        self.words = {"": ""}
        self._inside, self._silent = "", False
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._silent = tag in {"script", "style"}
        if tag == "section":
            self._inside = given["id"]
            self.words[self._inside] = ""
        self.tags.append((tag, self._inside, given))

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words[self._inside] += data

    def all(self, tag: str, section: str | None = None) -> list[dict[str, str]]:
        return [given for name, inside, given in self.tags if name == tag and section in (None, inside)]


# ---- in a browser


@pytest.fixture(scope="module")
def chromium() -> str:
    return needs_program(next((name for name in PROGRAMS if shutil.which(name)), PROGRAMS[0]))


@pytest.fixture(scope="module")
def seen(chromium: str, pages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    results = render_pages(chromium, list(pages.values()), tmp_path_factory.mktemp("browser"), hover={})
    return {name: results[path] for name, path in pages.items()}


@pytest.mark.processes
@pytest.mark.parametrize("name", ["whole", "empty", "failures"])
def test_the_browser_reports_no_error_and_requests_nothing_from_a_network(name: str, seen: dict[str, Seen]) -> None:
    assert seen[name].complaints == []
    assert len(seen[name].drawn) == (0 if name == "empty" else 6)
    assert min(seen[name].drawn.values(), default=99) > 20
    assert [url for url in seen[name].requests if not url.startswith("data:")] == []


@pytest.mark.processes
@pytest.mark.parametrize("name", ["whole", "empty", "failures"])
def test_no_page_is_wider_than_a_laptop_or_a_phone(name: str, seen: dict[str, Seen]) -> None:
    for width in (LAPTOP, PHONE):
        assert seen[name].widths[width] <= width


def run_script(chromium: str, page: Path, folder: Path, script: str) -> Any:
    """The result of a script that runs at the end of the page, after five seconds of the browser's virtual clock."""
    copy = folder / "run_script.html"
    ending = (
        f"<script>document.documentElement.dataset.result = JSON.stringify((() => {{ {script} }})());</script></body>"
    )
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", ending), encoding="utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--window-size=1280,800", "--virtual-time-budget=5000", "--dump-dom")  # fmt: skip
    result = subprocess.run(
        [chromium, f"--user-data-dir={folder / 'profile'}", *flags, copy.as_uri()],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    [answer] = re.findall('data-result="(.*?)"', result.stdout)
    return json.loads(html.unescape(answer))


SEARCHING = """
const at = (name) => document.getElementById(name);
const result = () => ({
  found: at("found").textContent,
  lines: [...document.querySelectorAll("#rows tr:not(.gap)")].map((line) => line.children[1].textContent),
});
const search = (words, reason = "") => {
  at("reason").value = reason;
  at("reason").dispatchEvent(new Event("change"));
  at("search").value = words;
  at("search").dispatchEvent(new Event("input"));
  return result();
};
const first = result();
at("scroll").scrollTop = 1e9;
at("scroll").dispatchEvent(new Event("scroll"));
return {
  first, last: result(), one: search("07777"), evil: search("alert(2)"), both: search("BROKEN no /0123"),
  none: search("nowhere"),
  reason: search("", "truncated"), width: document.documentElement.scrollWidth,
};
"""


@pytest.mark.processes
def test_ten_thousand_failures_are_scrolled_and_searched_at_once(
    chromium: str, pages: dict[str, Path], tmp_path: Path
) -> None:
    result = run_script(chromium, pages["failures"], tmp_path, SEARCHING)
    assert result["first"]["found"] == f"{FAILURES + 2:,} of {FAILURES + 2:,}"
    assert result["first"]["lines"][:2] == [EVIL, "broken/00000.mp4"]
    assert 10 < len(result["first"]["lines"]) < 60  # what is in sight, and a little around it
    assert f"real/{NASTY}2.mp4" in result["last"]["lines"][-1]
    assert result["one"] == {"found": f"1 of {FAILURES + 2:,}", "lines": ["broken/07777.mp4"]}
    assert result["evil"]["lines"] == [EVIL]
    assert result["both"]["lines"] == [f"broken/0123{number}.mp4" for number in range(10)]
    assert result["none"] == {"found": f"0 of {FAILURES + 2:,}", "lines": []}
    assert result["reason"]["lines"] == [f"real/{NASTY}2.mp4"]
    assert result["width"] <= 1280


DRAWN = """
const visible = (what) => [...document.querySelectorAll(`.frame ${what}`)].filter((one) => getComputedStyle(one).display !== "none").length;
const after = (name, what) => { document.getElementById(`show-${name}`).click(); return visible(what); };
return {
  at_first: ["polygon.box", "circle", "polygon.hull", "rect"].map(visible),
  clicked: [after("box", "polygon.box"), after("landmarks", "circle"), after("hull", "polygon.hull"), after("regions", "rect")],
  broken: [...document.images].filter((one) => !one.complete || !one.naturalWidth).length,
};
"""  # noqa: E501


def test_boxes_landmarks_hulls_and_regions_are_drawn_on_demand(
    chromium: str, pages: dict[str, Path], tmp_path: Path
) -> None:
    result = run_script(chromium, pages["whole"], tmp_path, DRAWN)
    faces = result["clicked"][0]
    assert result["at_first"] == [0, 5 * faces, 0, 0]
    assert result["clicked"] == [faces, 0, faces, 5 * faces]
    assert result["broken"] == 0
    assert faces > 48


# ---- what is on it


def test_the_page_needs_nothing_else(pages: dict[str, Path]) -> None:
    for path in pages.values():
        page = Page(path)
        links = [given[name] for _, _, given in page.tags for name in ("src", "href") if name in given]
        assert all(link.startswith(("data:", "#")) for link in links)
        assert "url(" not in path.read_text(encoding="utf-8").partition("</style>")[0]
        [policy] = [given["content"] for given in page.all("meta") if given.get("http-equiv")]
        assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def test_names_are_shown_as_they_are_and_not_acted_on(pages: dict[str, Path]) -> None:
    page = Page(pages["whole"])
    assert f"real/{NASTY}.mp4" in page.words["strips"]
    assert "<b>swap" in page.words["numbers"]
    titles = " ".join(given.get("title", "") for given in page.all("div"))
    assert f"real/{NASTY}.mp4" in titles
    own = [given for given in page.all("script") if given.get("type") != "application/json"]
    assert len(own) == 3  # Bokeh, what starts it, and what shows the failures
    assert NASTY not in pages["whole"].read_text(encoding="utf-8")
    assert f"real/{NASTY}2.mp4" in json.dumps(failures_on(pages["whole"]), ensure_ascii=False).replace('\\"', '"')


def failures_on(path: Path) -> Any:
    [text] = re.findall(r'<script type="application/json" id="failed">(.*?)</script>', path.read_text(encoding="utf-8"))
    return json.loads(text)


def test_the_worst_comes_first_in_plain_words(pages: dict[str, Path]) -> None:
    top = " ".join(Page(pages["whole"]).words[""].split())
    assert "errors to fix before you train on it" in top
    assert top.index("val has no fake faces.") < top.index("of the faces are smaller than 60 px")
    assert top.index("of the faces are smaller than 60 px") < top.index("No original and no known person")
    empty = " ".join(Page(pages["empty"]).words[""].split())
    assert "The dataset holds no faces." in empty


def test_empty_sections_are_omitted(pages: dict[str, Path]) -> None:
    always = {"", "numbers", "failures", "settings"}
    assert set(Page(pages["empty"]).words) == always
    assert set(Page(pages["whole"]).words) == always | {"histograms", "faces", "worst", "pairs", "strips"}


def test_every_class_is_shown_at_random_and_always_the_same(out: Path, inspection: Inspection) -> None:
    random = inspection.sheets.random
    assert {label: len(pictures) for label, pictures in random.items()} == {"real": 24, "fake": 24}
    index = Index(out)
    for label, pictures in random.items():
        assert len({picture.row for picture in pictures}) == 24
        assert {index.labels[index.value("label", picture.row)] for picture in pictures} == {label}
    reloaded = inspect_dataset(out).sheets
    assert [picture.uri for picture in reloaded.random["fake"]] == [picture.uri for picture in random["fake"]]


def test_the_worst_faces_are_the_worst_of_as_many_videos_as_there_are(out: Path, inspection: Inspection) -> None:
    index = Index(out)
    for sheet in inspection.sheets.lowest:
        rows = [picture.row for picture in sheet.pictures]
        videos = [index.value("video_id", row) for row in rows]
        assert len(rows) == 8
        assert len(set(videos)) == 5
        if sheet.key == "sharpness":
            sharpness = index.column("sharpness").to_pylist()
            assert sharpness[rows[0]] == min(sharpness)
            assert [sharpness[row] for row in rows] == sorted(sharpness[row] for row in rows)


def pixels_of(uri: str | None) -> NDArray[np.uint8]:
    data = base64.b64decode(str(uri).partition(",")[2])
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED), np.uint8)


def test_a_fake_stands_beside_the_same_face_of_its_source_with_its_mask(out: Path, inspection: Inspection) -> None:
    index, sheets = Index(out), inspection.sheets
    assert len(sheets.changed) == 2  # one a video
    assert len(sheets.unchanged) == 2
    for pair in [*sheets.changed, *sheets.unchanged]:
        assert pair.source.video_id == index.value("source_id", pair.fake.row)
        for same in ("frame_index", "crop_xyxy"):
            assert index.value(same, pair.source.row) == index.value(same, pair.fake.row)
        mask = pixels_of(pair.fake.mask_uri)[..., 3] > 0
        assert mask.shape == pixels_of(pair.fake.uri).shape[:2]
        assert mask.mean() == pytest.approx(index.value("manipulated", pair.fake.row), abs=1e-6)
        assert pair.manipulated == pytest.approx(mask.mean(), abs=1e-6)
        same = index.value("track_id", pair.fake.row) == 1 or index.value("frame_index", pair.fake.row) % 4 == 0
        assert (pair in sheets.unchanged) == same


def test_a_mask_is_that_of_its_row_also_where_a_row_group_ends(out: Path) -> None:
    index = Index(out)
    fakes = np.flatnonzero([method is not None for method in index.column("method").to_pylist()])
    first = int(index.rows_where("file", index.value("file", int(fakes[-1])))[0])
    around = [row for row in range(first + ROW_GROUP_ROWS - 3, first + ROW_GROUP_ROWS + 3) if row in fakes]
    assert len(around) == 6
    pictures = PictureReader(index)
    for row in around:
        mask = pixels_of(pictures.read(row, 64, mask=True).mask_uri)[..., 3] > 0
        assert mask.mean() == pytest.approx(index.value("manipulated", row), abs=1e-6)


def test_a_damaged_mask_is_counted_and_its_fake_shown_without_it(out: Path, tmp_path: Path) -> None:
    copy = assets_dataset.copy_dataset(out, tmp_path / "out")
    index = Index(copy)
    for pair in inspect_dataset(copy).sheets.changed:
        with (copy / index.value("file", pair.fake.row)).open("r+b") as file:
            file.seek(index.value("mask_offset", pair.fake.row) + 16)
            file.write(b"damaged")
    sheets = inspect_dataset(copy).sheets
    assert {pair.fake.row for pair in sheets.changed} == set(sheets.unreadable)
    assert all(pair.fake.uri and pair.fake.mask_uri is None for pair in sheets.changed)


def test_a_mask_that_says_it_is_huge_is_counted_as_a_damaged_one(out: Path, tmp_path: Path) -> None:
    copy = assets_dataset.copy_dataset(out, tmp_path / "out")
    index = Index(copy)
    for pair in inspect_dataset(copy).sheets.changed:
        with (copy / index.value("file", pair.fake.row)).open("r+b") as file:
            # The header of a PNG: its kind, at byte 12, width, height, 5 bytes more, and the CRC of all that.
            file.seek(index.value("mask_offset", pair.fake.row) + 12)
            kind, rest = file.read(4), file.read(13)[8:]
            header = kind + struct.pack(">II", 1 << 20, 1 << 20) + rest
            file.seek(-17, io.SEEK_CUR)
            file.write(header + zlib.crc32(header).to_bytes(4, "big"))
    sheets = inspect_dataset(copy).sheets
    assert {pair.fake.row for pair in sheets.changed} == set(sheets.unreadable)
    assert all(pair.fake.uri and pair.fake.mask_uri is None for pair in sheets.changed)


def test_fakes_that_were_never_compared_are_shown_with_the_reason(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobSpec, "file_exists", lambda *_: False)
        apart = (("train", (Clip("real/bea.mp4", 9),)), ("train", (Clip("fake/bea-talk.mp4", 9),)))
        make_dataset(tmp_path / "out", apart)
    write_page(inspect_dataset(tmp_path / "out"), tmp_path / "a.html")
    words = " ".join(Page(tmp_path / "a.html").words["pairs"].split())
    assert "No face of this dataset has a mask." in words
    assert "no mask bea-talk.mp4" in words


def test_a_strip_shows_each_track_in_the_order_of_time(out: Path, inspection: Inspection) -> None:
    index = Index(out)
    assert len(inspection.sheets.strips) == 4
    for strip in inspection.sheets.strips:
        assert list(strip.tracks) == [0, 1]
        for track, pictures in strip.tracks.items():
            rows = [picture.row for picture in pictures if picture is not None]
            assert {index.value("track_id", row) for row in rows} == {track}
            assert {index.value("video_id", row) for row in rows} == {strip.video_id}
            frames = [index.value("frame_index", row) for row in rows]
            assert frames == sorted(set(frames))
            assert (
                len(frames)
                == len(strip.times)
                == min(20, index.column("video_id").to_pylist().count(strip.video_id) // 2)
            )


LEFT, RIGHT = (0.05, 0.2, 0.4, 0.7), (0.6, 0.2, 0.95, 0.7)


def test_videos_in_which_ids_may_switch_are_shown_first(tmp_path: Path) -> None:
    """One face that jumps across the frame gets two tracks; two faces side by side have two all the time."""
    boxes_by_video = {
        "still.mp4": lambda _: (LEFT,),
        "two.mp4": lambda _: (LEFT, RIGHT),
        "jumps.mp4": lambda number: (RIGHT if number > 3 else LEFT,),
    }

    def picture(clip: Clip, number: int) -> NDArray[np.uint8]:
        frame = np.full((48, 64, 3), 200, np.uint8)
        frame[0, 0, 0], frame[0, 0, 1] = list(boxes_by_video).index(clip.name), number
        return frame

    def detect(_: Any, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        boxes = [[*boxes_by_video.values()][rgb[0, 0, 0]](rgb[0, 0, 1]) for rgb in frames]
        return [FixedBoxDetector(frame_boxes).detect([rgb])[0] for frame_boxes, rgb in zip(boxes, frames, strict=True)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assets_dataset, "_picture", picture)
        patch.setattr(assets_dataset._NoiseDetector, "detect", detect)
        make_dataset(tmp_path / "out", (("train", tuple(Clip(name, 9) for name in boxes_by_video)),))
    index = Index(tmp_path / "out")
    videos = VideoTable.of(index)
    assert dict(zip(videos.names, videos.max_faces_per_frame, strict=True)) == {
        "still.mp4": 1,
        "two.mp4": 2,
        "jumps.mp4": 1,
    }
    strips = track_strips(index, videos, np.random.default_rng(0), count=3, max_tracks=1, max_frames=4)
    assert [videos.names[strip.video] for strip in strips] == ["jumps.mp4", "two.mp4", "still.mp4"]
    assert [strip.num_more_tracks for strip in strips] == [1, 1, 0]
    assert [strip.rows.shape for strip in strips] == [(1, 4)] * 3
    assert [sorted(set(strip.frames)) for strip in strips] == [strip.frames for strip in strips]
    assert all((strip.rows >= 0).all() for strip in strips)


def test_every_histogram_counts_every_face_of_a_class_once(inspection: Inspection) -> None:
    names = [histogram.name for histogram in inspection.histograms]
    assert names == ["face size, px", "crop size, px", "score", "sharpness", "manipulated, %", "faces a video"]
    for histogram in inspection.histograms:
        assert histogram.fractions.keys() == {"real", "fake"} or histogram.name == "manipulated, %"
        for fraction in histogram.fractions.values():
            assert len(fraction) == len(histogram.edges) - 1 == len(histogram.bin_ranges)
            assert fraction.sum() == pytest.approx(1)


def test_fakes_that_show_their_source_are_counted_first(pages: dict[str, Path]) -> None:
    top = " ".join(Page(pages["whole"]).words[""].split())
    assert re.search(r"6\d % of the fakes' faces differ from their source by less than 1 %", top)


def test_failures_that_no_receipt_names_are_counted(out: Path, tmp_path: Path) -> None:
    copy = assets_dataset.copy_dataset(out, tmp_path / "out")
    for path in (copy / "receipts").iterdir():
        path.unlink()
    write_page(inspect_dataset(copy), tmp_path / "a.html")
    assert "1 failure no receipt names: run facefeed verify." in Page(tmp_path / "a.html").words["failures"]


def test_damaged_images_leave_a_note_where_they_would_be(out: Path, tmp_path: Path) -> None:
    copy = assets_dataset.copy_dataset(out, tmp_path / "out")
    index = Index(copy)
    for row in range(0, len(index), 2):
        with (copy / index.value("file", row)).open("r+b") as file:
            file.seek(index.value("image_offset", row) + index.value("image_bytes", row) // 2)
            byte = file.read(1)[0]
            file.seek(-1, io.SEEK_CUR)
            file.write(bytes([byte ^ 0x10]))  # it still decodes, to something else
    result = inspect_dataset(copy)
    shown_rows = {picture.row for pictures in result.sheets.random.values() for picture in pictures}
    assert {row for row in shown_rows if row in result.sheets.unreadable} == {row for row in shown_rows if row % 2 == 0}
    write_page(result, tmp_path / "a.html")
    page = Page(tmp_path / "a.html")
    assert (
        f"{len(result.sheets.unreadable)} of the {len(result.sheets.rows_read)} pictures that were read are damaged"
        in page.words[""]
    )
    assert "The stored image is damaged" in page.words["faces"]
    assert 0 < len(page.all("img", "faces")) < 48


# ---- where things are drawn


@pytest.mark.parametrize("tilt_degrees", [0.0, 25.0])
def test_the_box_is_drawn_at_the_detected_position_also_on_rotated_crops(tilt_degrees: float, tmp_path: Path) -> None:
    box = FixedBoxDetector(((0.3, 0.25, 0.7, 0.75),)).detect([np.zeros((48, 64, 3), np.uint8)])[0]
    angle = np.deg2rad(tilt_degrees)
    turned = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    middle = box.landmarks.mean(axis=1, keepdims=True)
    faces = Faces(box.boxes_xyxy, box.scores, ((box.landmarks - middle) @ turned + middle).astype(np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assets_dataset._NoiseDetector, "detect", lambda _, frames: [faces for _ in frames])
        make_dataset(tmp_path / "out", (("train", (Clip("real/anna.mp4", 2),)),), align=True)
    index = Index(tmp_path / "out")
    assert index.value("crop_degrees", 0) == pytest.approx(tilt_degrees, abs=0.01)
    outline = PictureReader(index).read(0, 64, outline=True).outline
    assert outline is not None
    # Where the landmarks lie between the corners of the box is the same in the frame as on the crop.
    (left, top, right, bottom) = box.boxes_xyxy[0]
    between = (faces.landmarks[0] - (left, top)) / (right - left, bottom - top)
    corner, across, down = outline.box[0], outline.box[1] - outline.box[0], outline.box[3] - outline.box[0]
    expected = corner + between[:, :1] * across + between[:, 1:] * down
    assert outline.landmarks == pytest.approx(expected, abs=0.01)
