"""What is left of a job where a lost worker had a unit split: the halves count, not the unit."""

from __future__ import annotations

from pathlib import Path

from assets_dataset import HALVED, NO_ROWS, make_dataset, open_run_state


def test_halves_that_are_left_do_not_outnumber_the_units_of_a_job(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", HALVED), ("train", NO_ROWS)))
    run_state = open_run_state(tmp_path / "out")
    assert run_state.pending_and_finished() == ([], 3)
    split, whole = run_state.plan.units()
    first_half, _ = split.halves(run_state.config_hash)
    for unit in (first_half, whole):
        run_state.paths.receipt(unit.unit_id).unlink()
    pending, finished = open_run_state(tmp_path / "out").pending_and_finished()
    assert [unit.unit_id for unit in pending] == [first_half.unit_id, whole.unit_id]
    assert finished == 1
