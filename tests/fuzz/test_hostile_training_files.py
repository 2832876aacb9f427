"""What a user notices of pipelines, runs and checkpoints of somebody else: they work, or one error says why not."""

from __future__ import annotations

import copy
import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_hostile import damaged_bytes, damaged_json, odd_values, places_of
from assets_paths import ROOT
from assets_random import examples
from assets_reader_process import Outcome, ReaderProcess
from assets_train import classifier, data, small_dataset, trainer
from assets_training_readers import CONFIG
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.train.checkpoints.plain import read_checkpoint
from facefeed.train.run.result import Result
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

DRAWN = st.data()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReaderProcess]:
    process = ReaderProcess(tmp_path_factory.mktemp("reader"))
    yield process
    process.close()


def read(reader: ReaderProcess, function: str, folder: Path) -> Outcome:
    return reader.read(f"assets_training_readers.{function}", folder)


# ---- pipelines of augmentations

PIPELINE = (ROOT / "loaders/augment/example.yaml").read_text()
ODD_YAML = (
    "!!python/object/apply:os.mkdir [owned]", "!!python/object/new:os.mkdir [owned]", "!!python/name:os.system ''",
    "!!python/module:owned ''", "!!int ''", "!!float ''", "!!bool maybe", "!!timestamp never", "!!binary '***'",
    "!!set {a, b}", "!!omap [a: 1]", "!!null x", "2020-99-99", "2001-12-14t21:59:43.10+99:99", "9" * 5000, "0b2",
    "1:99:99.5",
    ".nan", ".inf", "-1", "1e400", "&a [*a]", "&a {transforms: [*a]}", "*unknown", "{[1]: 2}", "{? {a: 1} : 2}",
    "{1: 2, .nan: 3}", "{<<: 5}", "{<<: [{p: 1.0}, 7]}", "'\0'", '"\\uD800"', "[" * 3000, "{a: " * 3000, "~", "[]",
    "{}",
    "''", "x" * 70_000, "os.system", "albumentations.core.serialization.from_dict", "Lambda", "TextImage", "OneOf",
    "Resize", "100000000", "[1, 2, 3]", "{__class_fullname__: Compose, p: 1.0, transforms: []}",
)  # fmt: skip


@st.composite
def damaged_yaml(draw: st.DrawFn) -> bytes:
    """A pipeline with other scalars, without or with further lines, or damaged anywhere."""
    text = PIPELINE
    for _ in range(draw(st.integers(1, 3))):
        spans = [match.span(1) for match in re.finditer(r"(?:: |- |, |\[)([^,{}\[\]\n]+)", text)]
        if not spans:
            break
        start, end = spans[draw(st.integers(0, len(spans) - 1))]
        text = text[:start] + draw(st.sampled_from(ODD_YAML)) + text[end:]
    data = text.encode("utf-8", "surrogatepass")
    return draw(st.one_of(st.just(data), st.just(data), damaged_bytes(data), st.just(text.encode("utf-16", "replace"))))


NESTED = "{{__class_fullname__: Compose, p: 1.0, transforms: [{}]}}".format
FLIP = "{__class_fullname__: HorizontalFlip, p: 1.0}"


def levels(count: int, copies: int) -> str:
    """A pipeline of `count` levels, each of which holds the one below `copies` times, by reference."""
    lines = [f"a0: &a0 {FLIP}"]
    lines += [f"a{n}: &a{n} {NESTED(', '.join([f'*a{n - 1}'] * copies))}" for n in range(1, count)]
    return "\n".join([*lines, f"transform: *a{count - 1}"])


PIPELINES = {
    "a billion references": levels(10, 10),
    "references fifteen hundred deep": levels(1500, 1),
    "itself within itself": f"transform: &a {NESTED('*a')}",
    "a number of 5000 digits": f"transform: {NESTED('9' * 5000)}",
    "a date that is none": "transform: 2020-99-99",
    "an integer without digits": "transform: !!int ''",
    "a truth value that is none": "transform: !!bool maybe",
    "a time that is none": "transform: !!timestamp never",
    "a group whose probability is none": f"transform: {NESTED(FLIP).replace('p: 1.0', 'p: 0b2', 1)}",
    "a group whose probability is above 1": f"transform: {NESTED(FLIP).replace('p: 1.0', 'p: 2', 1)}",
    "a call": "transform: !!python/object/apply:os.mkdir [owned]",
}


@pytest.mark.parametrize("title", PIPELINES)
def test_a_pipeline_that_is_none_is_refused(reader: ReaderProcess, tmp_path: Path, title: str) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINES[title])
    outcome = read(reader, "load_pipeline", tmp_path)
    assert outcome.kind == "refused", outcome
    assert "pipeline.yaml: " in outcome.text


def test_references_to_a_few_transforms_are_read(reader: ReaderProcess, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(levels(3, 3))
    assert read(reader, "load_pipeline", tmp_path) == Outcome(kind="read")


@examples(60, in_test=20, same_fixtures=True)
@given(content=damaged_yaml())
def test_a_hostile_pipeline_is_read_or_refused(reader: ReaderProcess, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pipeline.yaml").write_bytes(content)
    outcome = read(reader, "load_pipeline", tmp_path)
    assert outcome.is_sound, outcome


# ---- the folder of a run


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_dataset(tmp_path_factory.mktemp("data") / "out")


def config_record(out: Path) -> dict[str, Any]:
    dataset = {"path": str(out), "fingerprint": Manifest.read(out).fingerprint}
    return {
        "version": 1, "facefeed": "0.2.0", "dataset": dataset, "config": asdict(CONFIG), "ranks": 2,
        "pipelines": {"transform": "0a"}, "notes": ["a note"],
    }  # fmt: skip


def result_record(out: Path) -> dict[str, Any]:
    return asdict(Result(
        run="run", dataset=str(out), config=asdict(CONFIG), epochs=2, steps=14, images=104, seconds=3.5,
        images_per_second=30.0, stall=None, memory={"cpu": 1, "gpu": None}, lever_metrics={"clip": {"clipped": 1}},
        frozen=[{"steps": 3}], best_step=7, checkpoint="best.ckpt", val={"val/auc": 0.5}, test={"test/auc": 0.5},
        val_faces=17, val_videos=3, test_faces=11, test_videos=2,
    ))  # fmt: skip


@pytest.fixture
def run(out: Path, tmp_path: Path) -> Path:
    """A folder with the dataset `out` and a finished run `run`."""
    (tmp_path / "out").symlink_to(out)
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/config.json").write_text(json.dumps(config_record(out)))
    (tmp_path / "run/result.json").write_text(json.dumps(result_record(out)))
    return tmp_path


def test_a_sound_run_is_read(reader: ReaderProcess, run: Path) -> None:
    assert read(reader, "resume_run", run) == Outcome(kind="read")


@pytest.mark.parametrize("name", ["config.json", "result.json"])
@examples(60, in_test=20, same_fixtures=True)
@given(drawn=DRAWN)
def test_a_hostile_record_of_a_run_is_read_or_refused(
    reader: ReaderProcess, run: Path, out: Path, name: str, drawn: Any
) -> None:
    sound = {"config.json": config_record, "result.json": result_record}[name](out)
    (run / "run" / name).write_bytes(drawn.draw(damaged_json(sound)))
    outcome = read(reader, "resume_run", run)
    (run / "run" / name).write_text(json.dumps(sound))
    assert outcome.is_sound, outcome


# ---- checkpoints


@pytest.fixture(scope="module")
def saved(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a few steps of training, with all that Lightning saves."""
    path = tmp_path_factory.mktemp("saved") / "last.ckpt"
    fit = trainer(max_steps=2)
    fit.fit(classifier(loss="bce"), data(out))
    fit.save_checkpoint(path)
    return path


def odd_tensors() -> st.SearchStrategy[torch.Tensor]:
    return st.sampled_from([
        torch.zeros(0), torch.zeros(()), torch.full((3,), float("nan")), torch.zeros(1).expand(1 << 40),
        torch.zeros(2, 3, dtype=torch.int64), torch.tensor([True]), torch.zeros(1, dtype=torch.complex64),
        torch.eye(2).to_sparse(), torch.zeros(2, device="meta"), torch.zeros(3, dtype=torch.bfloat16),
    ])  # fmt: skip


@st.composite
def damaged_contents(draw: st.DrawFn, sound: dict[str, Any]) -> bytes:
    """A checkpoint as torch writes it, with other values; weights and optimizers are changed as one place each."""
    contents = copy.copy({name: value for name, value in sound.items() if name not in ("optimizer_states", "loops")})
    weights = contents["state_dict"] = dict(contents["state_dict"])
    kept = {name: copy.deepcopy(value) for name, value in contents.items() if name != "state_dict"}
    for _ in range(draw(st.integers(1, 2))):
        odd = draw(st.one_of(odd_values(), odd_tensors()))
        if draw(st.integers(0, 3)) == 0:
            weights[draw(st.sampled_from([*weights, "more"]))] = odd
            continue
        places = [*places_of(kept), (kept, "state_dict")]
        parent, key = places[draw(st.integers(0, len(places) - 1))]
        parent[key] = odd
    sink = io.BytesIO()
    torch.save({"state_dict": weights, **kept}, sink)
    return sink.getvalue()


def test_a_sound_checkpoint_is_evaluated(reader: ReaderProcess, run: Path, saved: Path) -> None:
    shutil.copyfile(saved, run / "last.ckpt")
    assert read(reader, "evaluate_checkpoint", run) == Outcome(kind="read")


@examples(12, in_test=4, same_fixtures=True)
@given(drawn=DRAWN)
def test_a_checkpoint_with_odd_contents_is_evaluated_or_refused(
    reader: ReaderProcess, run: Path, saved: Path, drawn: Any
) -> None:
    (run / "last.ckpt").write_bytes(drawn.draw(damaged_contents(read_checkpoint(saved))))
    outcome = read(reader, "evaluate_checkpoint", run)
    assert outcome.is_sound, outcome


CALL = b"\x80\x02cposix\nmkdir\nX\x05\x00\x00\x00owned\x85R."


@st.composite
def damaged_pickle(draw: st.DrawFn, archive: bytes) -> bytes:
    """The archive with a damaged program, and checksums that are right."""
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as sound, zipfile.ZipFile(sink, "w") as damaged:
        for name in sound.namelist():
            content = sound.read(name)
            is_program = name.endswith("data.pkl")
            damaged.writestr(name, draw(damaged_bytes(content, content, CALL)) if is_program else content)
    return sink.getvalue()


@st.composite
def damaged_safetensors(draw: st.DrawFn, sound: bytes) -> bytes:
    """With another header, whose length is right."""
    end = 8 + int.from_bytes(sound[:8], "little")
    header = draw(damaged_json(json.loads(sound[8:end])))
    return len(header).to_bytes(8, "little") + header + sound[end:]


@pytest.fixture(scope="module")
def weights() -> dict[str, bytes]:
    """Weights by name in each format."""
    state = {name: tensor.contiguous() for name, tensor in classifier().state_dict().items()}
    archive, old = io.BytesIO(), io.BytesIO()
    torch.save({"state_dict": state}, archive)
    torch.save({"state_dict": state}, old, _use_new_zipfile_serialization=False)
    return {"weights.ckpt": archive.getvalue(), "weights.pth": old.getvalue(), "weights.safetensors": save(state)}


FORMATS = ("weights.ckpt", "weights.pth", "weights.safetensors")


def read_weights(reader: ReaderProcess, folder: Path, name: str, content: bytes) -> Outcome:
    for path in folder.glob("weights.*"):
        path.unlink()
    (folder / name).write_bytes(content)
    return read(reader, "start_warm", folder)


@pytest.mark.parametrize("name", FORMATS)
def test_sound_weights_are_loaded(reader: ReaderProcess, weights: dict[str, bytes], tmp_path: Path, name: str) -> None:
    assert read_weights(reader, tmp_path, name, weights[name]) == Outcome(kind="read")


def test_an_archive_whose_files_lie_before_its_start_is_refused(
    reader: ReaderProcess, weights: dict[str, bytes], tmp_path: Path
) -> None:
    outcome = read_weights(reader, tmp_path, "weights.ckpt", weights["weights.ckpt"][1:])
    assert outcome.kind == "refused", outcome
    assert "damaged" in outcome.text


@pytest.mark.parametrize("name", FORMATS)
@examples(40, in_test=12, same_fixtures=True)
@given(drawn=DRAWN)
def test_hostile_weights_are_loaded_or_refused(
    reader: ReaderProcess, weights: dict[str, bytes], tmp_path: Path, name: str, drawn: Any
) -> None:
    sound = weights[name]
    inner = {"weights.ckpt": damaged_pickle, "weights.safetensors": damaged_safetensors}.get(name, damaged_bytes)
    outcome = read_weights(
        reader, tmp_path, name, drawn.draw(st.one_of(inner(sound), damaged_bytes(sound, sound, CALL)))
    )
    assert outcome.is_sound, outcome
