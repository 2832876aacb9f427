"""What a user notices of `evaluate`: a row a dataset, classes by their names, and checkpoints that are plain data."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import albumentations
import pytest
import torch
from assets_dataset import Clip, copy_dataset, make_dataset
from assets_docs import key_differences, keys
from assets_fit import trained
from assets_rows import damage
from assets_train import TEST_FACES, TRAIN_FACES, UNITS, VAL_FACES, classifier, data, small_dataset, trainer
from click.testing import CliRunner
from facefeed.loaders import FaceDataset
from facefeed.pipeline import console
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.train.checkpoints.plain import read_checkpoint
from facefeed.train.checkpoints.training_videos import hash_videos
from facefeed.train.datamodule import FaceDataModule
from facefeed.train.evaluate import evaluate
from facefeed.train.model.face_classifier import FaceClassifier
from facefeed.train.run import tables
from facefeed.train.run.result import Result
from rich.console import Console

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("evaluate") / "out")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of other people, with another method; its test split alone has fakes."""
    units = (
        ("test", (Clip("real/gina.mp4", 5), Clip("fake/gina-morph.mp4", 4))),
        ("val", (Clip("real/hugo.mp4", 3),)),
    )
    path = tmp_path_factory.mktemp("other") / "other"
    make_dataset(path, units)
    return path


@pytest.fixture(scope="module")
def result(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return trained(out, tmp_path_factory.mktemp("run") / "run", epochs=1)[0]


def labelled(labels: tuple[str, ...], number_of: dict[str, int], out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset with these classes; each clip's number by the folder it is in."""
    entry = Clip.entry
    monkeypatch.setattr(Clip, "entry", lambda clip: replace(entry(clip), label=number_of[clip.name.split("/")[0]]))
    make_dataset(out, (("test", (Clip("real/emil.mp4", 6), Clip("fake/emil-talk.mp4", 5))),), labels=labels)
    return out


def test_on_its_own_test_split_it_measures_what_training_reported(out: Path, result: Result) -> None:
    (evaluation,) = evaluate(result.checkpoint, [out])
    assert (evaluation.faces, evaluation.videos, evaluation.split) == (TEST_FACES, 2, "test")
    reported = {name.removeprefix("test/"): value for name, value in result.test.items() if name != "test/loss"}
    assert evaluation.metrics == pytest.approx(reported, abs=1e-6)  # training's metrics are float32
    assert evaluation.notes == []


def test_with_a_transform_that_draws_at_random_it_measures_what_training_reported(out: Path, tmp_path: Path) -> None:
    brightness = albumentations.RandomBrightnessContrast(brightness_limit=0.8, p=1.0)
    albumentations.save(albumentations.Compose([brightness]), str(tmp_path / "a.yaml"), data_format="yaml")
    options = {"eval_transform": str(tmp_path / "a.yaml"), "seed": 7}
    result, _ = trained(out, tmp_path / "run", data=options, model={"learning_rate": 1e-2})
    for split, reported in (("val", result.val), ("test", result.test)):
        (evaluation,) = evaluate(result.checkpoint, [out], split=split)
        expected = {name.removeprefix(f"{split}/"): value for name, value in reported.items() if "/loss" not in name}
        assert evaluation.metrics == pytest.approx(expected, rel=1e-6)  # training's metrics are float32


def test_a_pipeline_that_is_not_that_of_training_is_warned_of(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = albumentations.Compose([albumentations.RandomBrightnessContrast(p=1.0)])
    albumentations.save(pipeline, "background.yaml", data_format="yaml")
    result, _ = trained(out, tmp_path / "run", steps=1, data={"eval_transform": "background.yaml"})
    assert warnings_of(result.checkpoint, out, "test") == []
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")  # where facefeed's own file of that name is the pipeline
    (note,) = warnings_of(result.checkpoint, out, "test")
    assert note.startswith("out: warning: data.eval_transform=background.yaml has other contents than in training")
    stored = torch.load(result.checkpoint, weights_only=True)
    del stored["FaceDataModule"]["pipelines"]
    torch.save(stored, "older.ckpt")
    assert warnings_of("older.ckpt", out, "test") == []


def test_a_split_is_what_was_asked_for_and_all_is_every_face(out: Path, other: Path, result: Result) -> None:
    def faces(split: str, *outs: Path) -> list[int]:
        return [evaluation.faces for evaluation in evaluate(result.checkpoint, outs, split=split)]

    assert faces("val", out, other) == [VAL_FACES, 3]
    assert faces("train", out) == [TRAIN_FACES]
    assert faces("all", out, other) == [TRAIN_FACES + VAL_FACES + TEST_FACES, 12]
    (real_only,) = evaluate(result.checkpoint, [other], split="val")
    assert "auc" not in real_only.metrics  # one class alone has none
    assert {"accuracy", "accuracy_real"} <= real_only.metrics.keys()


def test_classes_are_matched_by_name_whatever_their_numbers(
    out: Path, result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = labelled(("fake", "real"), {"fake": 0, "real": 1}, tmp_path / "turned", monkeypatch)
    original, renumbered = evaluate(result.checkpoint, [out, turned])
    assert original.metrics == renumbered.metrics


def test_a_class_that_was_not_trained_on_is_refused_and_one_without_faces_is_not(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = labelled(("real", "fake", "drawn"), {"real": 0, "fake": 1}, tmp_path / "three", monkeypatch)
    assert evaluate(result.checkpoint, [three])[0].faces == 11
    drawn = labelled(("real", "fake", "drawn"), {"real": 0, "fake": 2}, tmp_path / "drawn", monkeypatch)
    with pytest.raises(UsageError, match="has faces of the class drawn, and the checkpoint knows real, fake alone"):
        evaluate(result.checkpoint, [drawn])


def test_faces_without_a_label_take_no_part_and_it_says_so(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = labelled(("real", "fake"), {"real": 0, "fake": -1}, tmp_path / "unknown", monkeypatch)
    (evaluation,) = evaluate(result.checkpoint, [unknown])
    assert evaluation.faces == 6
    assert evaluation.notes == ["unknown: 5 faces without a label take no part"]


def test_a_damaged_face_takes_no_part_and_is_not_said_to_lack_a_label(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = labelled(("real", "fake"), {"real": 0, "fake": -1}, tmp_path / "unknown", monkeypatch)
    dataset = FaceDataset(unknown, split="test")
    damage(unknown, *dataset.rows[dataset.index.numbers("label", dataset.rows) == 0][:2])
    (evaluation,) = evaluate(result.checkpoint, [unknown])
    assert evaluation.faces == 4
    assert evaluation.notes == [
        "unknown: 5 faces without a label take no part",
        "unknown: 2 damaged images take no part; run `facefeed verify`",
    ]


def _with_room_for(images: int, patch: pytest.MonkeyPatch) -> list[int]:
    """A GPU that takes so many images at once; returns the numbers of those that it took."""
    forward, taken = FaceClassifier.forward, list[int]()

    def limited(model: FaceClassifier, batch: torch.Tensor) -> torch.Tensor:
        if len(batch) > images:
            raise torch.OutOfMemoryError("CUDA out of memory")
        taken.append(len(batch))
        return forward(model, batch)

    patch.setattr(FaceClassifier, "forward", limited)
    return taken


def test_a_gpu_with_less_memory_than_that_of_training_takes_smaller_batches(
    out: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    (expected,) = evaluate(result.checkpoint, [out])
    taken = _with_room_for(1, monkeypatch)
    (evaluation,) = evaluate(result.checkpoint, [out])
    assert evaluation.metrics == pytest.approx(expected.metrics, abs=1e-6)
    assert taken == [1] * TEST_FACES


def test_a_gpu_without_memory_for_an_image_is_the_reason(
    out: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_room_for(0, monkeypatch)
    with pytest.raises(UsageError, match="too little free memory for a single image"):
        evaluate(result.checkpoint, [out])


def test_a_dataset_that_is_given_twice_is_refused(out: Path, result: Result) -> None:
    with pytest.raises(UsageError, match="is given twice; name each dataset once"):
        evaluate(result.checkpoint, [out, out])


class _Writes:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_that_would_run_code_is_refused_and_does_not(out: Path, tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "hyper_parameters": _Writes(tmp_path / "written")}, tmp_path / "bad.ckpt")
    with pytest.raises(UsageError, match=r"bad\.ckpt: asks for \w+\.mkdir to be run, .*refused"):
        evaluate(tmp_path / "bad.ckpt", [out])
    assert not (tmp_path / "written").exists()


def test_a_folder_of_parts_is_refused_with_what_to_give(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder without shards; .* make one file by convert_zero_"):
        evaluate(tmp_path, [out])
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UsageError, match=r"is a run's folder; give .*checkpoints.best\.ckpt"):
        evaluate(tmp_path, [out])


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A dataset without a test split."""
    path = tmp_path / "few"
    make_dataset(path, (("train", (Clip("real/ida.mp4", 3), Clip("fake/ida-swap.mp4", 3))),))
    return path


def test_where_nothing_can_be_measured_it_is_refused_beforehand(
    out: Path, result: Result, few: Path, tmp_path: Path
) -> None:
    for outs, split, message in (
        ([few], "test", r"few: its split test has no faces; take another --split, or all"),
        ([few, tmp_path / "nothing"], "test", r"(?s)few: its split.*nothing: no manifest\.json"),
        ([out], "tests", r"split='tests': must be one of test, val, train, all"),
    ):
        calls: list[Any] = []
        with pytest.raises(UsageError, match=message):
            evaluate(result.checkpoint, outs, split=split, progress=lambda *args, calls=calls: calls.append(args))
        assert calls == []


def test_a_dataset_that_cannot_be_measured_has_the_reason_and_the_others_their_metrics(
    out: Path, result: Result, few: Path, tmp_path: Path
) -> None:
    rows = evaluate(result.checkpoint, [few, out, tmp_path / "nothing"])
    assert [(row.faces, row.reason is None) for row in rows] == [(0, False), (TEST_FACES, True), (0, False)]
    assert [row.metrics == {} for row in rows] == [True, False, True]
    cli_result = run(result.checkpoint, few, out, "--workers", 0, "--json")
    assert cli_result.exit_code == 1
    report = json.loads(cli_result.stdout)
    assert (report["exit"], [entry["faces"] for entry in report["datasets"]]) == (1, [0, TEST_FACES])
    assert "few: not measured: " in cli_result.stderr


@pytest.mark.parametrize("pattern", ["index.arrow", "faces/test/*.parquet"])
def test_a_dataset_that_is_damaged_costs_the_others_nothing(
    out: Path, result: Result, tmp_path: Path, pattern: str
) -> None:
    damaged = copy_dataset(out, tmp_path / "damaged")
    for path in damaged.glob(pattern):
        path.write_bytes(b"ARROW1")
    rows = evaluate(result.checkpoint, [out, damaged])
    assert [(row.faces, bool(row.reason)) for row in rows] == [(TEST_FACES, False), (0, True)]
    assert str(damaged) in str(rows[1].reason)
    with pytest.raises(CorruptDataError, match=re.escape(str(damaged))):
        evaluate(result.checkpoint, [damaged])


@pytest.mark.parametrize(
    ("stored", "difference"),
    [
        ({"margin": 1.5}, "--margin 1.5, in training 0.3"),
        ({"size_px": 16}, "--size 16, in training 32"),
        ({"size_px": 64}, None),  # reduced to the 32 px of the network, as in training
    ],
    ids=str,
)
def test_a_dataset_whose_crops_show_faces_otherwise_than_in_training_is_named(
    out: Path, result: Result, tmp_path: Path, stored: dict[str, Any], difference: str | None
) -> None:
    make_dataset(tmp_path / "other", (("test", (Clip("real/emil.mp4", 2), Clip("fake/emil-talk.mp4", 2))),), **stored)
    notes = warnings_of(result.checkpoint, tmp_path / "other", "test")
    expected = [] if difference is None else [f"other: warning: crops were stored with {difference}, so faces look"]
    assert [note[: len(text)] for note, text in zip(notes, expected, strict=True)] == expected


def test_with_a_crop_of_its_own_how_crops_were_stored_makes_no_difference(out: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "wide", (("test", (Clip("real/emil.mp4", 2), Clip("fake/emil-talk.mp4", 2))),), margin=1.5)
    crop = {"margin": 0.2, "size": 32}
    checkpoint = trained(out, tmp_path / "run", epochs=1, data={"crop": crop})[0].checkpoint
    assert warnings_of(checkpoint, tmp_path / "wide", "test") == []


def test_of_an_older_checkpoint_how_its_crops_were_stored_is_not_known_but_by_the_dataset_of_training(
    out: Path, result: Result, tmp_path: Path
) -> None:
    make_dataset(tmp_path / "other", (("test", (Clip("real/emil.mp4", 2), Clip("fake/emil-talk.mp4", 2))),))
    contents = read_checkpoint(result.checkpoint)
    del contents["FaceDataModule"]["framing"]
    torch.save(contents, tmp_path / "older.ckpt")
    assert warnings_of(tmp_path / "older.ckpt", out, "test") == []
    (note,) = warnings_of(tmp_path / "older.ckpt", tmp_path / "other", "test")
    assert "it is not known how the crops of training were stored (--margin, --align and --size" in note


def warnings_of(checkpoint: str | Path, out: Path, split: str) -> list[str]:
    (evaluation,) = evaluate(checkpoint, [out], split=split)
    return evaluation.notes


def trained_videos(number: int, videos: int) -> str:
    return f"warning: {number} of {videos} videos were in the training split of this run"


def test_videos_that_were_trained_on_are_counted(out: Path, other: Path, result: Result) -> None:
    assert trained_videos(3, 3) in warnings_of(result.checkpoint, out, "train")[0]
    assert trained_videos(3, 8) in warnings_of(result.checkpoint, out, "all")[0]
    assert warnings_of(result.checkpoint, out, "val") == warnings_of(result.checkpoint, other, "all") == []


def test_a_dataset_in_a_store_is_read_through_the_cache_of_training_where_that_is_on_this_machine(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    there, default = tmp_path / "local" / "faces", tmp_path / "home" / "facefeed" / "stores"
    options = {"cache": str(there), "cache_bytes": 1 << 30}
    result, _ = trained(f"file://{out}", tmp_path / "run", epochs=1, data=options)
    shutil.rmtree(there)
    for folder, other in ((default, there), (there, default)):
        assert evaluate(result.checkpoint, [f"file://{out}"])[0].faces == TEST_FACES
        assert list(folder.rglob("blocks/*/*/0"))
        assert not other.exists()
        shutil.rmtree(folder)
        other.mkdir(parents=True)
    assert evaluate(result.checkpoint, [out])[0].faces == TEST_FACES, "a folder needs no cache"


def test_a_cache_of_training_below_the_home_folder_is_used_again(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "default"))
    result, _ = trained(f"file://{out}", tmp_path / "run", epochs=1, data={"cache": "~/faces"})
    assert evaluate(result.checkpoint, [f"file://{out}"])[0].faces == TEST_FACES
    assert list((tmp_path / "faces").rglob("blocks/*/*/0"))
    assert not (tmp_path / "default/facefeed/stores").exists()


def test_a_dataset_in_a_store_is_measured_and_checked_for_trained_videos_like_the_folder(
    out: Path, result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (local,), (stored,) = (evaluate(result.checkpoint, [each], split="all") for each in (out, f"file://{out}/"))
    assert stored == replace(local, dataset=f"file://{out}/")
    assert torch.equal(hash_videos(FaceDataset(f"file://{out}")), hash_videos(FaceDataset(out)))


def test_videos_that_were_trained_on_are_counted_in_a_dataset_with_one_more(result: Result, tmp_path: Path) -> None:
    (_, clips), *rest = UNITS
    make_dataset(tmp_path / "grown", (("train", (*clips, Clip("real/gina.mp4", 5))), *rest))
    assert trained_videos(3, 4) in warnings_of(result.checkpoint, tmp_path / "grown", "train")[0]
    make_dataset(tmp_path / "drawn", (("test", (*clips[:2], Clip("real/gina.mp4", 5))),))
    assert trained_videos(2, 3) in warnings_of(result.checkpoint, tmp_path / "drawn", "test")[0]


def test_videos_that_a_subclass_of_the_data_module_trained_on_are_counted(
    out: Path, other: Path, tmp_path: Path
) -> None:
    class Mine(FaceDataModule):
        """As a user's own, with other loaders or transforms."""

    module = Mine(out, data(out).options)
    fit = trainer(max_steps=1, limit_val_batches=0)
    fit.fit(classifier(), module)
    fit.save_checkpoint(tmp_path / "mine.ckpt")
    assert trained_videos(3, 3) in warnings_of(tmp_path / "mine.ckpt", out, "train")[0]
    assert warnings_of(tmp_path / "mine.ckpt", other, "all") == []


def with_contents(out: Path, content_of: Callable[[str], str]) -> Path:
    """Puts into the receipts what the videos' files hold, by `video_id`; those that were never filmed hold nothing."""
    for path in OutPaths(out).receipts.iterdir():
        receipt = Receipt.from_json(path.read_bytes(), where=str(path))
        inputs = [
            replace(entry, sha256=hashlib.sha256(content_of(entry.video_id).encode()).hexdigest())
            for entry in receipt.inputs
        ]
        path.write_text(replace(receipt, inputs=inputs).to_json())
    return out


def test_videos_are_known_by_what_their_files_hold_wherever_these_lie(tmp_path: Path) -> None:
    trained_on = with_contents(small_dataset(tmp_path / "kept"), lambda name: name)
    (result, _) = trained(trained_on, tmp_path / "run", epochs=1)
    clips = (Clip("real/x.mp4", 5), Clip("fake/x-swap.mp4", 4), Clip("real/anna.mp4", 4))
    make_dataset(tmp_path / "moved", (("test", clips),))
    before = {"real/x.mp4": "real/anna.mp4", "fake/x-swap.mp4": "fake/anna-talk.mp4"}
    with_contents(tmp_path / "moved", lambda name: before.get(name, "another film of that name"))
    assert trained_videos(2, 3) in warnings_of(result.checkpoint, tmp_path / "moved", "test")[0]


def test_of_a_checkpoint_without_a_record_a_note_says_that_nobody_knows(
    out: Path, other: Path, result: Result, tmp_path: Path
) -> None:
    stored = torch.load(result.checkpoint, weights_only=True)
    del stored["FaceDataModule"]["videos"]
    torch.save(stored, tmp_path / "older.ckpt")
    assert trained_videos(3, 8) in warnings_of(tmp_path / "older.ckpt", out, "all")[0]  # the very dataset
    for split in ("test", "all"):
        (note,) = warnings_of(tmp_path / "older.ckpt", other, split)
        assert "other: it cannot be known whether the checkpoint was trained on some of these videos" in note


def test_of_a_checkpoint_of_another_data_module_a_note_says_what_it_was_measured_on(
    out: Path, result: Result, tmp_path: Path
) -> None:
    stored = torch.load(result.checkpoint, weights_only=True)
    del stored["datamodule_hyper_parameters"]
    torch.save(stored, tmp_path / "own.ckpt")
    (evaluation,) = evaluate(tmp_path / "own.ckpt", [out])
    assert any("no record of how its images came" in note and "224 px, on all" in note for note in evaluation.notes)


def test_options_of_another_version_are_named(out: Path, result: Result, tmp_path: Path) -> None:
    stored = torch.load(result.checkpoint, weights_only=True)
    stored["datamodule_hyper_parameters"]["data"]["aspect"] = 1.5
    torch.save(stored, tmp_path / "newer.ckpt")
    with pytest.raises(UsageError, match=r"newer\.ckpt: .*aspect"):
        evaluate(tmp_path / "newer.ckpt", [out])


# ---- the command


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(main, ["evaluate", *map(str, arguments)])


def test_the_command_ends_with_a_row_a_dataset_and_one_json_object(out: Path, other: Path, result: Result) -> None:
    cli_result = run(result.checkpoint, out, other, "--workers", 0, "--json")
    assert cli_result.exit_code == 0, cli_result.output
    report = json.loads(cli_result.stdout.splitlines()[-1])
    assert [entry["name"] for entry in report["datasets"]] == ["out", "other"]
    assert key_differences({*keys(report)}, "An evaluation") == (set(), set())
    assert [entry["faces"] for entry in report["datasets"]] == [11, 9]
    assert report["exit"] == 0
    rows = [line for line in cli_result.stderr.splitlines() if "out " in line or "other " in line]
    for row, entry in zip([line for line in rows if line.count("│") == 8], report["datasets"], strict=True):
        metrics = [f"{entry['metrics'][name]:.3f}" for name in ("auc", "video_auc", "log_loss", "accuracy")]
        assert [cell.strip() for cell in row.split("│")[1:-1]] == [entry["name"], str(entry["faces"]), "2", *metrics]
    assert "method morph" in cli_result.stderr
    assert "An AUC over 2 videos shows that everything is connected, not that fakes are found" in " ".join(
        cli_result.stderr.split()
    )
    assert all(len(line) <= 80 for line in cli_result.stderr.splitlines() if "│" in line)


def test_metrics_of_weights_that_are_nan_are_null_with_a_note(out: Path, result: Result, tmp_path: Path) -> None:
    stored = torch.load(result.checkpoint, weights_only=True)
    name = list(stored["state_dict"])[-1]
    stored["state_dict"][name].fill_(float("nan"))
    torch.save(stored, tmp_path / "nan.ckpt")
    cli_result = run(tmp_path / "nan.ckpt", out, "--workers", 0, "--json")
    (entry,) = json.loads(cli_result.stdout, parse_constant=pytest.fail)["datasets"]
    assert {"auc", "log_loss", "accuracy"} <= entry["metrics"].keys()
    assert set(entry["metrics"].values()) == {None}
    assert f"out: the predictions for {TEST_FACES} of {TEST_FACES} faces are NaN" in cli_result.stderr


def test_names_that_would_control_a_terminal_are_shown_as_text(
    out: Path, result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed, output = shutil.copytree(out, tmp_path / "[red]\x1b[2J"), io.StringIO()
    terminal = Console(file=output, force_terminal=True, width=200)
    for module in (console, tables):
        monkeypatch.setattr(module, "stderr_console", lambda: terminal)
    cli_result = run(result.checkpoint, renamed, "--workers", 0)
    assert cli_result.exit_code == 0, cli_result.output
    shown = output.getvalue()
    assert rf"[red]\x1b[2J: {TEST_FACES} of {TEST_FACES} faces" in shown
    assert r"│ [red]\x1b[2J │" in shown
    assert "\x1b[2J" not in shown


def test_two_folders_of_one_name_are_distinguished(out: Path, result: Result, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(out)
    cli_result = run(result.checkpoint, out, f"{tmp_path}/out/", "--workers", 0, "--json")
    assert [entry["name"] for entry in json.loads(cli_result.stdout)["datasets"]] == [str(out), str(tmp_path / "out")]


def test_a_mistake_is_one_line_and_no_trace(out: Path, tmp_path: Path) -> None:
    cli_result = run(tmp_path / "none.ckpt", out)
    assert cli_result.exit_code == 2
    assert cli_result.stderr.startswith("facefeed: ")
    assert "No such file" in cli_result.stderr
    assert len(cli_result.stderr.splitlines()) == 1
