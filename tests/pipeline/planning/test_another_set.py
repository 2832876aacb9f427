"""What a user notices who names another set as SRC of a dataset: its files never take the place of others by name."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import RefusedError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.incremental import Changes, compare_with_plan, next_plan_part
from facefeed.pipeline.planning.plan import Plan, PlanPart
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.planning.validation import prepare_job

NAMES = ("real/0001.mp4", "real/0002.mp4", "fake/0001.mp4")


def make_set(root: Path, text: str, names: Sequence[str] = NAMES) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + name)
    return root


def run(src: Path, out: Path, *, done: bool = True, failing: bool = False, allow_roots: Sequence[Path] = ()) -> Changes:
    """What a run finds, which it plans and, where `done`, has receipts of; no input is opened."""
    job, listing, config = prepare_job(src, out, detector=FixedBoxDetector(), allow_roots=allow_roots)
    make_folders(job.paths)
    run_state = RunState(job.paths, Plan.load(job.paths), job.config_hash)
    changes = compare_with_plan(run_state, listing, job, lambda *_: nullcontext(lambda _: None))
    part = next_plan_part(
        run_state, listing, changes, job=job, config=config, allow_leaks=False, retry=None, cost_seconds=lambda _: 1.0
    )
    if part.units or part.mtime_updates or not run_state.plan.parts:
        run_state.plan.append(job.paths, part)
    for unit in part.units if done else ():
        outcomes = [
            InputOutcome(
                video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns,
                outcome="failed" if failing else "no_faces", reason="decode_error" if failing else None,
            )
            for entry in unit.inputs
        ]  # fmt: skip
        receipt = Receipt(
            unit=unit.unit_id, config_hash=job.config_hash, outcome="done", supersedes=list(unit.supersedes),
            inputs=outcomes,
        )  # fmt: skip
        job.paths.receipt(unit.unit_id).write_text(receipt.to_json())
    return changes


def changed(changes: Changes) -> list[str]:
    return [entry.video_id for entry in changes.changed]


def test_another_set_with_files_of_the_same_names_is_refused_and_nothing_is_planned(tmp_path: Path) -> None:
    first, other, out = make_set(tmp_path / "a", "A"), make_set(tmp_path / "b", "another"), tmp_path / "out"
    run(first, out)
    wanted = (
        rf"^fake/0001\.mp4: another file has that name in {other} than in {first}, and would replace its rows in OUT; "
        "so would 3 of 3 inputs of SRC .* use a new OUT, or name the folder that holds both"
    )
    with pytest.raises(RefusedError, match=wanted):
        run(other, out)
    assert len(Plan.load(OutPaths(out)).parts) == 1
    assert run(first, out) == Changes()


def test_a_further_set_with_other_names_is_added_and_each_set_may_change_afterwards(tmp_path: Path) -> None:
    first, out = make_set(tmp_path / "a", "A"), tmp_path / "out"
    further = make_set(tmp_path / "b", "B", ["real/x.mp4", "real/y.mp4"])
    run(first, out)
    assert [entry.video_id for entry in run(further, out).added] == ["real/x.mp4", "real/y.mp4"]
    make_set(first, "longer", NAMES[:1])
    assert changed(run(first, out)) == ["real/0001.mp4"]
    make_set(further, "longer", ["real/x.mp4", "real/y.mp4"])
    assert changed(run(further, out)) == ["real/x.mp4", "real/y.mp4"]
    assert run(first, out).changed == run(further, out).changed == []


def test_the_same_set_in_another_place_goes_on_also_where_a_video_has_changed(tmp_path: Path) -> None:
    first, out = make_set(tmp_path / "a", "A"), tmp_path / "out"
    run(first, out)
    moved = tmp_path / "moved"
    shutil.copytree(first, moved)
    make_set(moved, "longer", NAMES[:1])
    assert changed(run(moved, out)) == ["real/0001.mp4"]


def test_where_all_of_a_set_has_changed_in_its_place_all_is_done_again(tmp_path: Path) -> None:
    first, out = make_set(tmp_path / "a", "A"), tmp_path / "out"
    run(first, out)
    assert len(run(make_set(first, "longer"), out).changed) == 3


def test_a_plan_of_an_earlier_version_says_of_no_input_where_it_was(tmp_path: Path) -> None:
    first, out = make_set(tmp_path / "a", "A"), tmp_path / "out"
    run(first, out)
    paths = OutPaths(out)
    (part,) = Plan.load(paths).parts
    assert part.source == str(first)
    (paths.plan / "0.json").unlink()
    Plan().append(paths, PlanPart(config=part.config, units=part.units))
    assert set(Plan.load(paths).sources().values()) == {""}
    assert len(run(make_set(tmp_path / "b", "another"), out).changed) == 3


@pytest.mark.parametrize("options", [{"done": False}, {"failing": True}])
def test_where_nothing_of_the_first_set_was_computed_nothing_is_lost(options: dict[str, bool], tmp_path: Path) -> None:
    """A broken download, which is repeated in another folder, or the wrong folder by mistake."""
    out = tmp_path / "out"
    run(make_set(tmp_path / "a", "A"), out, **options)
    assert len(run(make_set(tmp_path / "b", "another"), out).changed) == 3


def test_a_set_that_was_found_to_be_the_same_elsewhere_is_at_home_there(tmp_path: Path) -> None:
    run(make_set(tmp_path / "a", "A"), tmp_path / "out")
    (part,) = Plan.load(OutPaths(tmp_path / "out")).parts
    moved = PlanPart(config=part.config, units=(), source="/moved", mtime_updates={"real/0001.mp4": 7})
    compacted = PlanPart(config=part.config, units=part.units, is_compaction=True)
    found = Plan([part, moved, compacted]).sources()
    assert found == dict.fromkeys(NAMES, str(tmp_path / "a")) | {"real/0001.mp4": "/moved"}


def test_files_by_absolute_names_are_the_same_in_whatever_table(tmp_path: Path) -> None:
    videos, out = make_set(tmp_path / "videos", "A"), tmp_path / "out"
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        (tmp_path / f"v{number}" / "t.csv").write_text("path,label\n../videos/real/0001.mp4,real\n")
    run(tmp_path / "v1/t.csv", out, allow_roots=[videos])
    make_set(videos, "longer", NAMES[:1])
    assert changed(run(tmp_path / "v2/t.csv", out, allow_roots=[videos])) == [str(videos / NAMES[0])]
