"""Any sequence of changes, runs, kills and damage: each run ends with the rows of a fresh one, and redoes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from assets_one_out import TALLY
from assets_random import examples
from assets_state_machine import PrecomputeMachine
from facefeed.pipeline import precompute as precompute_module
from facefeed.pipeline.commit import finalize
from facefeed.pipeline.dataset.index import layout
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.planning.incremental import changes, next_plan_part, replaced_units
from facefeed.pipeline.planning.options import hash_config
from facefeed.pipeline.planning.plan import Plan
from facefeed.pipeline.planning.recorded import RecordedDataset
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.rows.input_pipeline import InputPipeline, ProcessedInput
from facefeed.pipeline.verify import check, index_check, unit_check
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test


def test_after_whatever_has_happened_a_run_ends_with_the_rows_of_a_fresh_one() -> None:
    run_state_machine_as_test(PrecomputeMachine, settings=settings(examples(16, in_test=5), stateful_step_count=25))


@pytest.mark.chaos
def test_after_thousands_of_events_a_run_ends_with_the_rows_of_a_fresh_one() -> None:
    TALLY.clear()
    many = settings(max_examples=150, stateful_step_count=40, derandomize=False)
    run_state_machine_as_test(PrecomputeMachine, settings=many)
    print("\n".join(f"{count:7,} {what}" for what, count in sorted(TALLY.items())))


# --- that the machine notices a product with a defect

_Patch = pytest.MonkeyPatch


def _superseded_files_stay(patch: _Patch) -> None:
    patch.setattr(precompute_module, "remove_superseded", lambda _: None)


def _superseded_files_go_too_early(patch: _Patch) -> None:
    def publish(paths: OutPaths, manifest: Any) -> None:
        run_state = RunState(paths, Plan.load(paths), hash_config(manifest.config))
        names = {path.name for path, _ in run_state.parquet_files()}
        for path in paths.faces.rglob("*.parquet"):
            if path.name not in names:
                path.unlink()
        finalize.publish_manifest(paths, manifest)

    patch.setattr(precompute_module, "publish_manifest", publish)


def _a_new_time_is_no_change(patch: _Patch) -> None:
    def find_unchanged(_: Any, __: Any, ___: Any, entries: Any) -> set[str]:
        return {entry.video_id for entry in entries}

    patch.setattr(changes, "find_unchanged_content", find_unchanged)


def _a_new_time_is_a_change(patch: _Patch) -> None:
    patch.setattr(changes, "find_unchanged_content", lambda *_: set())


def _new_times_are_forgotten(patch: _Patch) -> None:
    def next_part(*args: Any, **given: Any) -> Any:
        return replace(next_plan_part(*args, **given), mtime_updates={})

    patch.setattr(precompute_module, "next_plan_part", next_part)


def _there_is_no_lease(patch: _Patch) -> None:
    @contextmanager
    def hold_lease(*_: Any, **__: Any) -> Iterator[None]:
        yield

    patch.setattr(precompute_module, "hold_lease", hold_lease)


def _the_index_is_not_written(patch: _Patch) -> None:
    patch.setattr(precompute_module, "write_index_or_quarantine", lambda *_, **__: [])


def _readers_do_not_know_the_next_index(patch: _Patch) -> None:
    for module in (layout, check, index_check):
        patch.setattr(module, "current_index_path", lambda out: OutPaths(out).index)


def _a_failure_counts_as_done(patch: _Patch) -> None:
    def process(pipeline: Any, *args: Any) -> ProcessedInput:
        processed: ProcessedInput = real(pipeline, *args)
        if processed.outcome.outcome != "failed":
            return processed
        return replace(processed, outcome=replace(processed.outcome, outcome="no_faces", reason=None, detail=None))

    real = InputPipeline._process
    patch.setattr(InputPipeline, "_process", process)


def _masks_of_fakes_stay(patch: _Patch) -> None:
    patch.setattr(replaced_units, "_fakes_of", lambda *_: [])


def _what_a_fake_was_compared_with_is_forgotten(patch: _Patch) -> None:
    patch.setattr(InputPipeline, "_source_sha256", lambda _: None)


def _failures_are_never_retried(patch: _Patch) -> None:
    patch.setattr(precompute_module, "retry_predicate", lambda _: None)


def _settings_are_mixed(patch: _Patch) -> None:
    patch.setattr(RecordedDataset, "refuse_other", lambda *_: None)


def _attempts_stay(patch: _Patch) -> None:
    patch.setattr(precompute_module, "remove_attempts", lambda _: None)


def _added_columns_of_superseded_rows_stay(patch: _Patch) -> None:
    patch.setattr(finalize, "remove_files_of", lambda *_: None)


def _orphans_stay(patch: _Patch) -> None:
    patch.setattr(precompute_module, "quarantine_orphans", lambda _: [])


def _verify_trusts_sizes(patch: _Patch) -> None:
    def recorded_sha256(path: Path) -> str | None:
        receipt = OutPaths(path.parents[2]).receipt(path.stem)
        return Receipt.from_json(receipt.read_bytes(), where=str(receipt)).sha256

    patch.setattr(unit_check, "sha256_of", recorded_sha256)
    patch.setattr(unit_check, "read_unit_file", lambda *_: ())


DEFECTS: dict[str, Callable[[_Patch], None]] = {
    function.__name__.strip("_").replace("_", " "): function
    for function in (
        _superseded_files_stay, _superseded_files_go_too_early, _a_new_time_is_no_change, _a_new_time_is_a_change,
        _new_times_are_forgotten, _there_is_no_lease, _the_index_is_not_written, _readers_do_not_know_the_next_index,
        _a_failure_counts_as_done, _masks_of_fakes_stay, _what_a_fake_was_compared_with_is_forgotten,
        _failures_are_never_retried, _settings_are_mixed, _attempts_stay, _added_columns_of_superseded_rows_stay,
        _orphans_stay, _verify_trusts_sizes,
    )
}  # fmt: skip


def failure_of_machine(max_examples: int) -> Exception:
    once = settings(
        max_examples=max_examples, stateful_step_count=25, phases=[Phase.generate], report_multiple_bugs=False
    )
    with pytest.raises(Exception) as raised:  # noqa: PT011 (whatever the defect leads to)
        run_state_machine_as_test(PrecomputeMachine, settings=once)
    return raised.value


@pytest.mark.chaos
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_noticed(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[defect](monkeypatch)
    assert failure_of_machine(500)


def test_a_failure_prints_a_script_that_fails_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    _the_index_is_not_written(monkeypatch)
    notes = failure_of_machine(20).__notes__
    script = notes[notes.index("state = PrecomputeMachine()") : notes.index("state.teardown()")]
    names: dict[str, Any] = {}
    with pytest.raises(AssertionError, match=r"index\.arrow: not there"):
        exec("\n".join(["from assets_state_machine import PrecomputeMachine", *script]), names)
    names["state"].teardown()
