"""What a user notices of `facefeed augment`: a page that is whole in itself, and one line for every mistake."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
import pytest
from assets_dataset import Clip, make_dataset
from assets_docs import key_differences
from assets_rows import RowsOnly, order_of
from click.testing import CliRunner, Result
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.augment import AlignedMixup, FaceCompose, FaceCutout, FaceXRay, LandmarkBlackout, MouthCrop
from facefeed.loaders.augment.pipeline_file import dataset_arguments, describe_pipeline, read_pipeline
from facefeed.loaders.dataset.face_dataset import FaceDataset
from facefeed.loaders.preview import gallery
from facefeed.loaders.preview.cli import augment
from facefeed.loaders.preview.selection import find_partner, spread_positions
from facefeed.loaders.sampling.balance import Pairs
from facefeed.pipeline.errors import UsageError

NASTY = "<script>alert(1)<&\"'"
CLIPS = (
    Clip(f"real/{NASTY}.mp4", 5),
    Clip(f"fake/{NASTY}-swap.mp4", 4),
    Clip("real/anna.mp4", 3),
    Clip("real/bea.mp4", 6),
)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gallery") / "out"
    make_dataset(out, (("train", CLIPS), ("val", (Clip("real/dora.mp4", 2),))))
    return out


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    compose = FaceCompose([A.HorizontalFlip(p=0.5), AlignedMixup(p=1), FaceCutout(p=0.5), A.ImageCompression(p=0.2)])
    A.save(compose, path, data_format="yaml")
    return path


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(augment, [str(argument) for argument in arguments])


def test_the_page_of_a_dataset_in_a_store_does_not_show_its_password(
    out: Path, pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery, "FaceDataset", lambda _address, **options: FaceDataset(out, **options))
    address = "https://me:password@host/faces"
    shown = gallery.Gallery.of(address, pipeline, split="train", faces=2, variants=1, seed=0)
    gallery.write_page(shown, tmp_path / "gallery.html")
    page = (tmp_path / "gallery.html").read_text()
    assert "https://host/faces" in page
    assert "password" not in page


class Page(HTMLParser):
    """What a browser would find on a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.sections: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.sections += [""] * (tag == "section")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.sections:
            self.sections[-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page_of(out: Path, pipeline: Path, path: Path, *options: Any) -> Page:
    result = run(out, pipeline, "--page", path, *options)
    assert result.exit_code == 0, result.output
    return Page(path.read_text(encoding="utf-8"))


def test_faces_of_a_dataset_in_a_store_are_those_of_the_folder(
    out: Path, pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pages = []
    for source in (out, f"file://{out}"):
        result = run(source, pipeline, "--faces", 2, "--page", tmp_path / "page.html")
        assert result.exit_code == 0, result.output
        pages.append(Page((tmp_path / "page.html").read_text()).all("img"))
    assert pages[0] == pages[1] != []


def test_the_page_shows_every_face_and_its_variants_with_points_on_each(
    out: Path, pipeline: Path, tmp_path: Path
) -> None:
    page = page_of(out, pipeline, tmp_path / "a.html", "--faces", 4, "--variants", 3)
    assert len(page.all("section")) == 4
    assert len(page.all("img")) == len(page.all("svg")) == 4 * (1 + 3)
    assert len(page.all("circle")) == 16 * 5
    assert len(page.all("polygon")) == 16
    assert len(page.all("rect")) == 16 * 5
    for image in page.all("img"):
        kind, data = str(image["src"]).split(",")
        assert kind == "data:image/jpeg;base64"
        pixels = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
        assert pixels.shape == (224, 224, 3)
    assert image["alt"]


def test_the_page_needs_nothing_else_and_runs_nothing(out: Path, pipeline: Path, tmp_path: Path) -> None:
    page = page_of(out, pipeline, tmp_path / "a.html", "--faces", 2, "--variants", 1)
    assert not page.all("script")
    assert not page.all("iframe")
    links = [attributes.get(name) for _, attributes in page.tags for name in ("src", "href") if name in attributes]
    assert links
    assert all(str(link).startswith("data:") for link in links)
    assert "url(" not in page.text
    assert "@import" not in page.text
    [policy] = [
        attributes["content"]
        for attributes in page.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_names_are_shown_as_they_are_and_not_acted_on(out: Path, tmp_path: Path) -> None:
    path = tmp_path / "<b>&bold.yaml"
    A.save(FaceCompose([A.HorizontalFlip()]), path, data_format="yaml")
    page = page_of(out, path, tmp_path / "a.html", "--faces", 9, "--variants", 1)
    assert f"real/{NASTY}.mp4 · frame" in page.text
    assert "<b>&bold.yaml" in page.text
    assert not page.all("script")
    assert not page.all("b")


def test_the_header_states_the_options(out: Path, pipeline: Path, tmp_path: Path) -> None:
    page = page_of(out, pipeline, tmp_path / "a.html", "--seed", 7, "--faces", 3, "--variants", 2)
    header_lines = [
        str(out),
        str(pipeline),
        "train, 18 faces",
        "3 faces at 224 px, 2 variants of each",
        "µs an image (median)",
    ]
    for message in [*header_lines, "FaceCompose100%", "HorizontalFlip50%", "FaceCutout50%"]:
        assert message in page.text


def pictures(page: Page) -> list[str]:
    return [str(image["src"]) for image in page.all("img")]


def test_a_seed_repeats_the_pictures_and_another_one_changes_them(out: Path, pipeline: Path, tmp_path: Path) -> None:
    shown = [pictures(page_of(out, pipeline, tmp_path / "a.html", "--seed", seed)) for seed in (3, 3, 4)]
    assert shown[0] == shown[1]
    assert shown[0] != shown[2]
    assert shown[0][::7] == shown[2][::7]  # the originals


def test_a_fake_is_mixed_with_the_frame_it_was_made_from(out: Path, pipeline: Path, tmp_path: Path) -> None:
    page = page_of(out, pipeline, tmp_path / "a.html", "--faces", 9, "--variants", 2)
    mixed = ["% real" in section for section in page.sections]
    assert mixed == [section.strip().startswith("fake") for section in page.sections]
    assert sum(mixed) == 4


def test_the_partner_of_a_fake_is_the_face_that_training_pairs_it_with() -> None:
    columns = {
        "video_id": ["a", "a", "a", "a", "x", "x", "x", "y"], "source_id": [*[None] * 4, "a", "a", "a", "gone"],
        "frame_index": [4, 4, 8, 8, 4, 8, 8, 4], "label": [0, 0, 0, 1, 1, 1, 1, 1],
        "box_xyxy": [(side, 0, side + 9, 9) for side in (0, 50, 0, 50, 50, 0, 50, 0)],
    }  # fmt: skip
    rows = RowsOnly(columns)
    data: Any = rows
    partners = {position: find_partner(data, position) for position in range(len(rows))}
    assert partners == {0: None, 1: None, 2: None, 3: None, 4: 1, 5: 2, 6: None, 7: None}
    pairs = order_of(rows, 2, balance=Pairs()).rows(0).reshape(-1, 2).tolist()
    assert {fake: real for real, fake in pairs} == {fake: real for fake, real in partners.items() if real is not None}
    rows.selection = rows.rows[1:]  # filters
    assert [find_partner(data, position) for position in range(3, 6)] == [0, 1, None]


def test_a_plain_compose_is_shown_without_points_that_it_does_not_transform(out: Path, tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    A.save(A.Compose([A.HorizontalFlip(p=1)]), path, data_format="yaml")
    page = page_of(out, path, tmp_path / "a.html", "--faces", 2, "--variants", 3)
    assert len(page.all("img")) == 8
    assert len(page.all("svg")) == 2
    assert "In a FaceCompose they follow" in page.text


def test_people_read_one_line_and_programs_one_object(out: Path, pipeline: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    result = run(out, pipeline, "--page", path, "--faces", 2, "--variants", 2, "--json")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"{path}: 2 faces, each in 2 variants")
    figures = json.loads(result.stdout.splitlines()[-1])
    assert key_differences({*figures}, "Augmented faces") == (set(), set())
    assert figures.pop("microseconds_per_image") > 0
    assert figures.pop("bytes") == path.stat().st_size
    assert figures == {"page": str(path), "split": "train", "faces": 2, "variants": 2, "seed": 0, "exit": 0}


# ---- which faces


def test_faces_are_of_every_label_and_of_as_many_videos_as_there_are() -> None:
    labels, videos = [0] * 90 + [1] * 9 + [-1], [0] * 80 + [1] * 5 + [2] * 5 + [3] * 9 + [4]
    assert spread_positions(labels, videos, 7) == [99, 40, 82, 87, 91, 94, 97]
    assert spread_positions(labels, videos, 2) == [99, 82]
    assert spread_positions([0, 0], [0, 0], 8) == [0, 1]
    assert spread_positions([], [], 8) == []


# ---- mistakes

VALID = {"__version__": "2.0.8", "transform": {"__class_fullname__": "Compose", "p": 1.0, "transforms": []}}


def as_json(*transforms: dict[str, Any]) -> str:
    return json.dumps({**VALID, "transform": {**VALID["transform"], "transforms": [*transforms]}})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is no YAML of plain data"),
        ("!!python/object/apply:os.system ['touch /tmp/owned']", "is no YAML of plain data"),
        ("just words", "holds no pipeline of Albumentations"),
        ("transform: 3", "holds no pipeline of Albumentations"),
        ("", "holds no pipeline of Albumentations"),
        ("transform: {p: 1}", "holds something that is no transform"),
        (as_json({"__class_fullname__": "Magic", "p": 1}), "Magic: neither Albumentations"),
        (as_json({"__class_fullname__": "HorizontalFlip", "p": 7}), "HorizontalFlip: p Input should be less"),
        (as_json({"__class_fullname__": "HorizontalFlip", "p": 1, "q": 2}),
         "HorizontalFlip: has no argument 'q'; it has p"),
        (as_json({"__class_fullname__": "HorizontalFlip", "p": 1, "transforms": []}), "has no argument 'transforms'"),
        (as_json({"__class_fullname__": "RGBShift", "p": 1, "r_shift_limt": [-9, 9], "noise_type": "uniform"}),
         "RGBShift: has no argument 'r_shift_limt'; it has r_shift_limit, g_shift_limit, b_shift_limit, p"),
        (as_json({"__class_fullname__": "SafeRotate", "p": 1, "rotate": [-9, 9]}), "has no argument 'rotate'"),
        (as_json({"__class_fullname__": "FDA", "p": 1, "beta": [0, 0.1]}), "FDA: has no argument 'beta'; it has"),
        (as_json({"__class_fullname__": "Resize", "height": 9, "width": 9}), "Resize has no p, the probability"),
        (as_json({"__class_fullname__": "Sequential", "p": 1, "transforms": [{"__class_fullname__": "OneOf",
                  "transforms": [{"__class_fullname__": "HorizontalFlip", "p": 1}]}]}), ": OneOf has no p, the prob"),
        (json.dumps({"transform": {"__class_fullname__": "facefeed.loaders.augment.FaceCompose", "transforms": []}}),
         ": FaceCompose has no p, the probability"),
        (as_json({"__class_fullname__": "facefeed.loaders.augment.FaceCutout", "hull": 2, "p": 1}), "hull=2: must be"),
        (as_json({"__class_fullname__": "facefeed.loaders.augment.FaceCutout", "x": 2, "p": 1}),
         "FaceCutout: has no argument 'x'; it has landmark, hull, block, min_visible_px, p"),
        (as_json("words"), "holds something that is no transform"),  # type: ignore[arg-type]
        (json.dumps({"transform": {"__class_fullname__": "HorizontalFlip", "p": 1}}), "holds HorizontalFlip alone"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_pipeline_is_reported_in_one_line_and_nothing_is_written(
    text: str, message: str, out: Path, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    result = run(out, path, "--page", tmp_path / "a.html")
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert str(path) in str(result.exception)
    assert "\n" not in str(result.exception)
    assert sorted(tmp_path.iterdir()) == [path]
    assert not Path("/tmp/owned").exists()


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (A.Compose([FaceXRay(p=1)]), "transform: FaceXRay is for faces, "),
        (FaceCompose([A.Normalize()]), "returns ndarray float32 (224, 224, 3): must be a uint8 array"),
        (FaceCompose([A.RandomCrop(999, 999)]), "fails on a face"),
    ],
)
def test_a_pipeline_that_fails_on_a_face_is_reported_in_one_line(
    compose: Any, message: str, out: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pipeline.yaml"
    for transform in compose:
        transform.p = 1
    A.save(compose, path, data_format="yaml")
    result = run(out, path, "--page", tmp_path / "a.html")
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_dataset_without_what_a_transform_needs_is_refused_as_the_loader_refuses_it(
    out: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mouth.yaml"
    compose = FaceCompose([MouthCrop(96), A.RandomCrop(88, 88)])
    A.save(compose, path, data_format="yaml")
    with pytest.raises(UsageError) as refused:
        FaceDataset(out, face_transform=compose)
    result = run(out, path, "--page", tmp_path / "a.html")
    assert str(result.exception) == str(refused.value)
    assert sorted(tmp_path.iterdir()) == [path]


def test_mixup_of_three_classes_is_refused_as_the_loader_refuses_it(pipeline: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "a.html"
    make_dataset(out, (("train", CLIPS),), labels=("real", "fake", "edited"))
    with pytest.raises(UsageError, match="needs two classes, and there are real, fake, edited") as refused:
        FaceDataLoader(out, balance=Pairs(), face_transform=read_pipeline(pipeline), num_workers=0)
    result = run(out, pipeline, "--page", page)
    assert str(result.exception) == str(refused.value)
    assert not page.exists()


def test_a_packaged_pipeline_is_found_by_its_bare_name_in_any_folder(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "SelfBlend" in [line.name for line in describe_pipeline(read_pipeline(Path("self_blend.yaml")))]
    assert dataset_arguments(Path("resize_64.yaml")).keys() == {"face_transform"}
    assert run(out, "example.yaml", "--faces", 1, "--variants", 1).exit_code == 0
    A.save(FaceCompose([FaceCutout(p=1)]), "self_blend.yaml", data_format="yaml")
    own = describe_pipeline(read_pipeline(Path("self_blend.yaml")))
    assert [line.name for line in own] == ["FaceCompose", "FaceCutout"], "a file of one's own comes first"


@pytest.mark.parametrize("path", ["self_blnd.yaml", "loaders/augment/self_blend.yaml", "__init__.py"])
def test_a_pipeline_that_is_not_there_is_named_with_those_that_are_packaged(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packaged = "background.yaml, example.yaml, resize_64.yaml, self_blend.yaml, self_blend_64.yaml"
    with pytest.raises(UsageError, match=f"{path}: No such file; .* comes with facefeed: {packaged}$"):
        read_pipeline(Path(path))


def test_unusable_paths_are_reported_and_nothing_is_written(out: Path, pipeline: Path, tmp_path: Path) -> None:
    text = pipeline.read_text()
    for arguments in (
        (tmp_path / "no dataset", pipeline, "--page", tmp_path / "a.html"),
        (out, tmp_path / "no file.yaml", "--page", tmp_path / "a.html"),
        (out, tmp_path, "--page", tmp_path / "a.html"),
        (out, pipeline, "--split", "test", "--page", tmp_path / "a.html"),
        (out, pipeline, "--page", tmp_path / "no folder" / "a.html"),
        (out, pipeline, "--page", tmp_path),
        (out, pipeline, "--page", pipeline),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, UsageError), arguments
        assert sorted(tmp_path.iterdir()) == [pipeline]
    assert pipeline.read_text() == text


def test_a_pipeline_is_described_with_the_arguments_that_are_not_defaults() -> None:
    compose = FaceCompose(
        [
            A.OneOf([A.HorizontalFlip(p=0.25), FaceCutout()], p=1),
            A.Affine(rotate=(-9, 9), p=0.5),
            LandmarkBlackout({"nose": 1}),
        ]
    )
    described = [(line.depth, line.name, line.probability, line.arguments) for line in describe_pipeline(compose)]
    assert described == [
        (0, "FaceCompose", "100%", []),
        (1, "OneOf", "100%", []),
        (2, "HorizontalFlip", "25%", []),
        (2, "FaceCutout", "100%", []),
        (1, "Affine", "50%", ["rotate (-9, 9)"]),
        (1, "LandmarkBlackout", "50%", ["weights nose:1"]),
    ]


def test_a_transform_that_holds_functions_is_described_as_any_other(out: Path, tmp_path: Path) -> None:
    path = tmp_path / "jitter.yaml"
    A.save(A.Compose([A.ColorJitter(hue=(0, 0), p=1)]), path, data_format="yaml")
    page = page_of(out, path, tmp_path / "a.html", "--faces", 1, "--variants", 1)
    assert "ColorJitter100% hue (0, 0)" in page.text


@pytest.mark.parametrize(
    ("transform", "arguments"),
    [
        (A.PadIfNeeded(300, 300, p=1), ["min_height 300", "min_width 300"]),
        (A.RGBShift((-9, 9)), ["r_shift_limit (-9, 9)"]), (A.SafeRotate((-9, 9)), ["limit (-9, 9)"]),
    ],
    ids=["PadIfNeeded", "RGBShift", "SafeRotate"],
)  # fmt: skip
def test_a_transform_that_was_saved_with_arguments_of_its_parent_classes_is_read(
    transform: Any, arguments: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "saved.yaml"
    A.save(A.Compose([A.OneOf([transform], p=1)]), path, data_format="yaml")
    loaded = read_pipeline(path)
    assert loaded[0][0].to_dict_private() == transform.to_dict_private()
    assert describe_pipeline(loaded)[2].arguments == arguments


def test_a_pipeline_read_from_its_file_is_the_one_that_was_saved(pipeline: Path) -> None:
    loaded = read_pipeline(pipeline)
    assert type(loaded) is FaceCompose
    assert [type(transform).__name__ for transform in loaded] == [
        "HorizontalFlip",
        "AlignedMixup",
        "FaceCutout",
        "ImageCompression",
    ]
