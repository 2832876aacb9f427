"""What a user notices of classes beyond real and fake: the same names and numbers from the table to a batch."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from assets_layouts import Footage
from facefeed.loaders import FaceDataLoader, Quotas
from facefeed.pipeline.dataset.schema import labels_of
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import Entry, Listing, list_source, listing_warnings
from facefeed.pipeline.verify.check import verify

EMOTIONS = ("anger", "contempt", "disgust", "fear", "happy", "sad", "surprise")
ORDER = ("happy", "sad", "fear", "disgust", "anger", "contempt", "surprise")


@pytest.fixture
def emotions(tmp_path: Path, footage: Footage) -> Path:
    """Seven emotions, three videos each."""
    names = {f"{emotion}{number}.mp4": emotion for number in range(3) for emotion in EMOTIONS}
    root = footage.lay(tmp_path / "emotions", real=names)
    (root / "emotions.csv").write_text("path,label\n" + "".join(f"{path},{label}\n" for path, label in names.items()))
    return root / "emotions.csv"


@pytest.fixture
def ids(tmp_path: Path, footage: Footage) -> Path:
    """Videos of three people, and one of nobody knows whom."""
    names = [f"{number}.mp4" for number in range(7)]
    root = footage.lay(tmp_path / "ids", real=names)
    lines = [f"{name},{('7', '12', '100')[number % 3] if number < 6 else ''}" for number, name in enumerate(names)]
    (root / "ids.csv").write_text("\n".join(["path,label", *lines]))
    return root / "ids.csv"


@pytest.mark.parametrize("listed", [False, True])
def test_seven_emotions_keep_their_names_and_numbers_the_whole_way(
    emotions: Path, tmp_path: Path, small_options: Options, cluster_address: str, listed: bool
) -> None:
    if listed:
        emotions.with_suffix(".classes.txt").write_text("\n".join(ORDER))
    wanted = ORDER if listed else EMOTIONS
    out = tmp_path / "out"
    summary = precompute(emotions, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert tuple(summary.manifest.labels) == wanted
    faces = pads.dataset(out / "faces")
    assert labels_of(faces.schema) == wanted
    for row in faces.to_table(columns=["video_id", "label"]).to_pylist():
        assert wanted[row["label"]] == row["video_id"][: -len("0.mp4")]
    assert verify(out).findings == []
    loader = FaceDataLoader(out, split=None, batch_size=7, balance=Quotas(dict.fromkeys(EMOTIONS, 1)), num_workers=0)
    assert tuple(loader.dataset.labels) == wanted  # type: ignore[attr-defined]
    _, labels = next(iter(loader))
    assert sorted(labels.tolist()) == list(range(7)), "one of each, in whatever order"


def test_three_ids_are_numbered_by_value_and_unknown_ones_are_shown(
    ids: Path,
    tmp_path: Path,
    small_options: Options,
    cluster_address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    precompute(ids, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    rows = pads.dataset(out / "faces").to_table(columns=["video_id", "label"]).to_pylist()
    assert {row["video_id"]: row["label"] for row in rows} == {
        f"{number}.mp4": number % 3 if number < 6 else -1 for number in range(7)
    }
    assert verify(out).findings == []
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["facefeed.loaders", str(out)])
    runpy.run_module("facefeed.loaders", run_name="__main__")
    output = capsys.readouterr().out
    counts = dict.fromkeys(("7", "12", "100", "unknown"), 0)
    for line in output.splitlines():
        for part in line.split("(")[1].split(")")[0].split(", "):
            count, _, name = part.partition(" ")
            if name in counts:
                counts[name] += int(count)
    expected = Counter(("7", "12", "100", "unknown")[row["label"]] for row in rows)
    assert counts == expected


def test_the_run_says_how_many_of_each_class_it_found(emotions: Path) -> None:
    assert list_source(emotions).format_class_counts() == ", ".join(f"3 {name}" for name in EMOTIONS)


def test_many_classes_are_summed_up(tmp_path: Path, footage: Footage) -> None:
    names = [f"{number:03}.mp4" for number in range(20)]
    root = footage.lay(tmp_path / "many", real=names)
    rows = [f"{name},id{name[:3]}" for name in names[:19]]
    (root / "t.csv").write_text("\n".join(["path,label", *rows, f"{names[19]},"]))
    assert list_source(root / "t.csv").format_class_counts().endswith("1 id011, and 7 classes more, 1 unknown")


def table_of(root: Path, footage: Footage, labels: Iterable[str]) -> Path:
    """A table with a video for each label."""
    rows = {f"{number:02}.mp4": label for number, label in enumerate(labels)}
    footage.lay(root, real=rows)
    (root / "t.csv").write_text("path,label\n" + "".join(f"{path},{label}\n" for path, label in rows.items()))
    return root / "t.csv"


@pytest.mark.parametrize(
    ("given", "labels", "numbers"),
    [
        (("real", "fake", "avatar"), ("real", "fake", "avatar"), [0, 1, 2]),
        (("unsure", "FAKE", "Real", "avatar"), ("real", "fake", "avatar", "unsure"), [3, 1, 0, 2]),
        (("real", "Real", "fake", "10", "9"), ("real", "fake", "9", "10"), [0, 0, 1, 3, 2]),
        (("real", "fake", "unknown2"), ("real", "fake", "unknown2"), [0, 1, 2]),
        (("real", "fake", "Unknown", "-1", ""), ("real", "fake"), [0, 1, -1, -1, -1]),
        (("happy", "UNKNOWN", "sad"), ("happy", "sad"), [0, -1, 1]),
        (("unknown", ""), ("real", "fake"), [-1, -1]),
        (("Deepfake", "Real"), ("Real", "Deepfake"), [1, 0]),
        (("fake", "original", ""), ("original", "fake"), [1, 0, -1]),
        (("swap", "pristine", "manipulated"), ("pristine", "manipulated", "swap"), [2, 0, 1]),
        (("real", "Deepfakes", "Real", "FaceSwap"), ("real", "Deepfakes", "FaceSwap"), [0, 1, 0, 2]),
        (("FAKE", "Fake", "original"), ("original", "fake"), [1, 1, 0]),
        (("original", "swap", "Real"), ("Real", "original", "swap"), [1, 2, 0]),
        (("genuine", "authentic", "Fake"), ("Fake", "authentic", "genuine"), [2, 1, 0]),
        (("100", "30.5", "4.5", "-1"), ("4.5", "30.5", "100"), [2, 1, 0, -1]),
        (("+2", "-10", "-2.5", ".5", "1e1", "-1.0"), ("-10", "-2.5", ".5", "+2", "1e1"), [3, 0, 1, 2, 4, -1]),
    ],
)  # fmt: skip
def test_real_and_fake_come_first_unknown_is_no_class_and_numbers_go_by_value(
    tmp_path: Path, footage: Footage, given: tuple[str, ...], labels: tuple[str, ...], numbers: list[int]
) -> None:
    listing = list_source(table_of(tmp_path, footage, given))
    assert (listing.labels, [entry.label for entry in listing.entries]) == (labels, numbers)


def test_labels_that_differ_in_case_alone_are_refused_unless_a_list_names_both(
    tmp_path: Path, footage: Footage
) -> None:
    table = table_of(tmp_path, footage, ("happy", "sad", "Happy"))
    with pytest.raises(UsageError, match=r"t\.csv: has the labels 'Happy' and 'happy'.*t\.classes\.txt"):
        list_source(table)
    table.with_suffix(".classes.txt").write_text("sad\nhappy\nHappy\n")
    assert [entry.label for entry in list_source(table).entries] == [1, 0, 2]


def test_labels_that_are_one_number_are_refused_unless_a_list_names_both(tmp_path: Path, footage: Footage) -> None:
    table = table_of(tmp_path, footage, ("0", "1", "1.0"))
    with pytest.raises(UsageError, match=r"t\.csv: has the labels '1' and '1\.0', which would be two classes"):
        list_source(table)
    table.with_suffix(".classes.txt").write_text("0\n1\n1.0\n")
    assert [entry.label for entry in list_source(table).entries] == [0, 1, 2]


@pytest.mark.parametrize("empty", ["nan", "NaN", "None", "null", "NA", "n/a", "<NA>"])
def test_a_label_that_is_an_empty_cell_as_text_is_unknown_unless_a_list_names_it(
    tmp_path: Path, footage: Footage, empty: str
) -> None:
    table = table_of(tmp_path, footage, ("real", "fake", empty))
    listing = list_source(table)
    assert (listing.labels, [entry.label for entry in listing.entries]) == (("real", "fake"), [0, 1, -1])
    table.with_suffix(".classes.txt").write_text(f"real\nfake\n{empty}\n")
    assert [entry.label for entry in list_source(table).entries] == [0, 1, 2]


def test_an_empty_number_of_a_parquet_table_is_unknown(tmp_path: Path, footage: Footage) -> None:
    names = ["a.mp4", "b.mp4", "c.mp4"]
    footage.lay(tmp_path, real=names)
    pq.write_table(pa.table({"path": names, "label": [30.5, float("nan"), 4.5]}), tmp_path / "t.parquet")
    listing = list_source(tmp_path / "t.parquet")
    assert (listing.labels, [entry.label for entry in listing.entries]) == (("4.5", "30.5"), [1, -1, 0])


def test_a_class_called_unknown_is_not_counted_with_what_has_no_label(tmp_path: Path) -> None:
    entries = [Entry(video_id=str(number), label=label) for number, label in enumerate((0, 0, -1))]
    listing = Listing(layout="mine", root=tmp_path, labels=("Unknown",), entries=entries)
    assert listing.format_class_counts() == "2 Unknown, 1 no label"


# --- the file of classes


@pytest.mark.parametrize("classes", [("real", "fake"), ("fake", "real"), ("Real", "other", "Fake")])
def test_real_and_fake_in_any_case_are_those_of_the_list(
    tmp_path: Path, footage: Footage, classes: tuple[str, ...]
) -> None:
    table = table_of(tmp_path, footage, ("REAL", "fake", "Unknown"))
    table.with_suffix(".classes.txt").write_text("\n".join(classes))
    lower = [name.lower() for name in classes]
    assert [entry.label for entry in list_source(table).entries] == [lower.index("real"), lower.index("fake"), -1]


def test_a_list_may_make_unknown_a_class(tmp_path: Path, footage: Footage) -> None:
    table = table_of(tmp_path, footage, ("unknown", "", "happy"))
    table.with_suffix(".classes.txt").write_text("happy\nunknown\n")
    assert [entry.label for entry in list_source(table).entries] == [1, -1, 0]


def test_a_class_that_no_row_has_keeps_its_number_free(emotions: Path) -> None:
    emotions.with_suffix(".classes.txt").write_text("neutral\r\n" + "\r\n".join(ORDER) + "\r\n\r\n")
    listing = list_source(emotions)
    assert listing.labels == ("neutral", *ORDER)
    assert {entry.label for entry in listing.entries} == set(range(1, 8)), "so two tables with one list agree"


def test_a_label_that_the_list_lacks_is_named(emotions: Path) -> None:
    emotions.with_suffix(".classes.txt").write_text("\n".join(("happy ", "Sad", *ORDER[2:])))
    with pytest.raises(UsageError, match=r"emotions\.classes\.txt: lacks 'sad', which the table has.*'happy', 'Sad'"):
        list_source(emotions)


@pytest.mark.parametrize("text", ["", "\n\n", "happy\nhappy\n", "\n".join(map(str, range(129)))])
def test_a_list_of_classes_that_cannot_be_meant_is_refused(emotions: Path, text: str) -> None:
    emotions.with_suffix(".classes.txt").write_text(text)
    with pytest.raises(UsageError, match=r"emotions\.classes\.txt: holds \d+ names; must be 1 to 128, each once"):
        list_source(emotions)


def test_a_list_of_classes_that_is_no_text_is_refused(emotions: Path) -> None:
    emotions.with_suffix(".classes.txt").write_bytes(b"happy\xff")
    with pytest.raises(UsageError, match=r"emotions\.classes\.txt: cannot be read"):
        list_source(emotions)


def test_a_list_may_turn_real_and_fake_round(tmp_path: Path, footage: Footage) -> None:
    root = footage.lay(tmp_path / "round", real=["a.mp4"], fake=["b.mp4"])
    (root / "t.csv").write_text("path,label\na.mp4,real\nb.mp4,fake\n")
    (root / "t.classes.txt").write_text("fake\nreal\n")
    listing = list_source(root / "t.csv")
    assert (listing.labels, [entry.label for entry in listing.entries]) == (("fake", "real"), [1, 0])


def test_other_classes_on_the_same_out_are_refused(
    emotions: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    def run() -> None:
        precompute(
            emotions, tmp_path / "out", options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address
        )

    run()
    emotions.with_suffix(".classes.txt").write_text("\n".join(ORDER))
    with pytest.raises(RefusedError, match=r"labels: anger,.* there, happy,sad,.* now"):
        run()


def test_a_list_of_classes_says_which_is_real_and_masks_know_it(
    tmp_path: Path, footage: Footage, small_options: Options, cluster_address: str
) -> None:
    table = table_of(tmp_path / "src", footage, ["spoof", "live"] * 3)
    table.with_suffix(".classes.txt").write_text("Fake: spoof\nreal:live\n")
    out = tmp_path / "out"
    summary = precompute(table, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert summary.manifest.labels == ["fake", "real"]
    rows = pads.dataset(out / "faces").to_table(columns=["video_id", "label"]).to_pylist()
    assert {row["video_id"]: row["label"] for row in rows} == {f"{number:02}.mp4": number % 2 for number in range(6)}
    assert verify(out).findings == []
    loader = FaceDataLoader(out, split=None, batch_size=6, fields=("image", "label", "mask"), num_workers=0)
    for batch in loader:
        assert batch["mask"].isnan().all(dim=(1, 2)).tolist() == [label == 0 for label in batch["label"].tolist()]


def test_images_in_folders_called_after_labels_stay_inputs_of_their_own_where_one_is_stored_as_real(
    tmp_path: Path,
) -> None:
    names = [f"{label}/{number}.png" for label in ("live", "spoof") for number in range(3)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "t.csv").write_text("\n".join(["path,label", *(f"{name},{name.split('/')[0]}" for name in names)]))
    (tmp_path / "t.classes.txt").write_text("real: live\nspoof\n")
    _, listing, _ = prepare_job(tmp_path / "t.csv", tmp_path / "out", detector=FixedBoxDetector())
    assert listing.labels == ("real", "spoof")
    assert [(entry.video_id, entry.label, entry.footage) for entry in listing.entries] == [
        (name, int(name.startswith("spoof")), None) for name in names
    ]


def test_between_segments_a_video_has_the_class_that_a_list_calls_real(tmp_path: Path, footage: Footage) -> None:
    footage.lay(tmp_path, real=["a.mp4", "b.mp4"])
    (tmp_path / "t.csv").write_text('path,label,fake_segments\na.mp4,live,\nb.mp4,spoof,"[[1, 2]]"\n')
    with pytest.raises(
        UsageError, match=r"no class is called real, .*; call it real, .*'real: NAME' in t\.classes\.txt"
    ):
        list_source(tmp_path / "t.csv")
    (tmp_path / "t.classes.txt").write_text("real: live\nspoof\n")
    entry = list_source(tmp_path / "t.csv").entries[1]
    assert [entry.label_at(seconds) for seconds in (0.5, 1.5)] == [0, 1]


@pytest.mark.parametrize("listed", ["real: live\nreal\nspoof", "Real\nreal: live\nspoof", "real: live\nreal: spoof"])
def test_a_list_with_two_real_classes_is_refused(tmp_path: Path, footage: Footage, listed: str) -> None:
    table = table_of(tmp_path, footage, ("live", "spoof"))
    table.with_suffix(".classes.txt").write_text(listed)
    with pytest.raises(UsageError, match=r"t\.classes\.txt: has several classes that are 'real'"):
        list_source(table)


@pytest.mark.parametrize("labels", [("live", "spoof"), ("spoof",)])
def test_what_a_list_says_does_not_depend_on_which_labels_a_table_has(
    tmp_path: Path, footage: Footage, labels: tuple[str, ...]
) -> None:
    table = table_of(tmp_path, footage, labels)
    table.with_suffix(".classes.txt").write_text("real: live\nspoof\n")
    assert list_source(table).stored_labels == ("real", "spoof")
    table.write_text(table.read_text().replace("spoof", "real: live"))
    with pytest.raises(
        UsageError, match=r"lacks 'real: live', which the table has as a label; it lists 'live', 'spoof'"
    ):
        list_source(table)


def labelled(root: Path, **inputs: int) -> Path:
    """A table with so many inputs of each label; underscores at the start of a name are none of it."""
    labels = [label for label, count in inputs.items() for _ in range(count)]
    for number in range(len(labels)):
        (root / f"{number}.mp4").touch()
    rows = [f"{number}.mp4,{label.lstrip('_')}" for number, label in enumerate(labels)]
    (root / "t.csv").write_text("\n".join(["path,label", *rows]))
    return root / "t.csv"


def misspelt_labels(table: Path) -> list[str]:
    return [text for text in listing_warnings(list_source(table)) if "misspelt" in text]


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({"real": 5, "fake": 5, "rael": 1}, "'rael' (1 input) for 'real'"),
        ({"real": 5, "fake": 5, "fke": 2}, "'fke' (2 inputs) for 'fake'"),
        ({"real": 5, "fake": 5, "Fakes": 5}, "'Fakes' (5 inputs) for 'fake'"),
        ({"Fake": 5, "rael": 5}, "'rael' (5 inputs) for 'real'"),
        ({"real": 5, "DeepFakes": 10, "DeepFake": 1}, "'DeepFake' (1 input) for 'DeepFakes'"),
        ({"happy": 10, "hapy": 1, "sad": 5}, "'hapy' (1 input) for 'happy'"),
    ],
)
def test_a_label_that_is_nearly_another_one_is_named_with_the_one_that_is_meant(
    tmp_path: Path, inputs: dict[str, int], named: str
) -> None:
    table = labelled(tmp_path, **inputs)
    (warning,) = misspelt_labels(table)
    assert named in warning
    assert "t.classes.txt" in warning
    table.with_suffix(".classes.txt").write_text("\n".join(inputs))
    assert misspelt_labels(table) == [], "who lists it means it"


@pytest.mark.parametrize(
    "inputs",
    [
        {"real": 30, "fake": 30, "deepfakes": 3, "face2face": 3, "FaceSwap": 1, "FaceShifter": 10},
        {"real": 30, "fake_a": 30, "fake_b": 1, "fake_1": 1, "fakeC": 1},
        {"real": 30, "df1": 30, "df2": 1},
        {"real": 10, "fakes": 1},
        {"original": 10, "manipulated": 1},
        {"reals": 10, "fakes": 10},
        {"male": 20, "female": 2},
        {"person_anna": 2, "person_anne": 2},
        {"_0": 20, "_1": 2, "_10": 2, "_11": 2},
    ],
)
def test_labels_that_are_alike_but_meant_are_not_named(tmp_path: Path, inputs: dict[str, int]) -> None:
    assert misspelt_labels(labelled(tmp_path, **inputs)) == []
