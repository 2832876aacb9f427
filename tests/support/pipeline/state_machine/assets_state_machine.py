"""`PrecomputeMachine`: any sequence of changes of a source, runs, kills and damage of one OUT.

A failure prints a script of calls on `state`. It runs as it is after `from assets_state_machine import
PrecomputeMachine`, with the paths of `pythonpath` in pyproject.toml.
"""

from __future__ import annotations

from typing import Any, get_args

from assets_damage import FILES, Damage, damage
from assets_fresh_runs import SETTINGS
from assets_killed import killed_at
from assets_one_out import TALLY, OneOut
from assets_tiny_source import CONTENTS, NAMES
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

_NAMES, _CONTENTS = st.sampled_from(NAMES), st.sampled_from(CONTENTS)
_SEVERAL = st.dictionaries(_NAMES, st.sampled_from(("one", "two", "long")), min_size=1, max_size=4)
_MOMENTS = st.integers(1, 70)
"""Numbers of changes that a run makes; a later one never comes, and the run ends."""
_FILE_MOMENTS = st.integers(1, 12)
_COMPACTION_MOMENTS = st.integers(1, 35)
_PARTS = st.sampled_from([["1/1"], ["1/2", "2/2"], ["2/2", "1/2"], ["3/3", "1/3", "2/3"]])
"""Parts of a job, in the order in which they are run."""
_FEW = st.dictionaries(_NAMES, _CONTENTS, max_size=2)
"""What is put into the source right before a run, so that it has something to do."""


class PrecomputeMachine(RuleBasedStateMachine):
    """Rules on one source and one OUT; `OneOut` and `damage` check what must be true after each."""

    def __init__(self) -> None:
        super().__init__()
        self.one_out = OneOut()

    def teardown(self) -> None:
        self.one_out.close()

    @property
    def _present(self) -> set[str]:
        return {*self.one_out.source.contents}

    def check_invariants(self, *args: Any) -> None:
        """Called after each step."""
        TALLY["steps"] += 1
        super().check_invariants(*args)

    @initialize(contents=_SEVERAL, setting=st.sampled_from([*SETTINGS]))
    def begin(self, contents: dict[str, str], setting: str) -> None:
        self.one_out.start_anew(setting)
        self._put(contents)

    def _put(self, contents: dict[str, str]) -> None:
        for name, content in contents.items():
            self.one_out.put(name, content)

    # --- the source

    @rule(name=_NAMES, content=_CONTENTS)
    def put(self, name: str, content: str) -> None:
        self.one_out.put(name, content)

    @rule(name=_NAMES)
    def touch(self, name: str) -> None:
        if name in self._present:
            self.one_out.touch(name)

    @rule(name=_NAMES)
    def remove(self, name: str) -> None:
        if name in self._present:
            self.one_out.source.remove(name)

    @rule(name=_NAMES)
    def put_back(self, name: str) -> None:
        if name in self.one_out.source.before:
            self.one_out.put_back(name)

    @rule(name=_NAMES, to=_NAMES)
    def rename(self, name: str, to: str) -> None:
        if name in self._present and name != to:
            self.one_out.rename(name, to)

    # --- runs

    @rule()
    def run(self) -> None:
        self.one_out.run()

    @rule()
    def retry_failed(self) -> None:
        self.one_out.run(retry=True)

    @rule(new=_FEW, at=_MOMENTS, on_other_host=st.booleans())
    def run_and_be_killed(self, new: dict[str, str], at: int, on_other_host: bool) -> None:
        self._put(new)
        self.one_out.run_and_be_killed(at, on_other_host=on_other_host)

    @rule(new=_FEW, parts=_PARTS, kill_at=st.none() | _MOMENTS)
    def run_in_parts(self, new: dict[str, str], parts: list[str], kill_at: int | None) -> None:
        self._put(new)
        self.one_out.run_in_parts(parts, kill_at)

    @rule(new=_FEW, kill_at=st.none() | _MOMENTS)
    def run_losing_workers(self, new: dict[str, str], kill_at: int | None) -> None:
        self._put(new)
        self.one_out.run_losing_workers(kill_at)

    @rule(name=_NAMES, content=_CONTENTS, before=st.sampled_from(("nothing", *CONTENTS)), at=st.integers(0, 2))
    def run_while_replaced(self, name: str, content: str, before: str, at: int) -> None:
        if before != "nothing":
            self.one_out.put(name, before)
        self.one_out.run_while_replaced(name, content, at)

    @rule(name=_NAMES, content=_CONTENTS)
    def run_while_away(self, name: str, content: str) -> None:
        self.one_out.put(name, content)
        self.one_out.run_while_away(name)

    @rule(new=_FEW, at=_FILE_MOMENTS, command=st.sampled_from(("precompute", "add", "remove", "compact")))
    def run_beside(self, new: dict[str, str], at: int, command: str) -> None:
        self._put(new)
        self.one_out.run_beside(command, at)

    @rule(new=_FEW, at=_FILE_MOMENTS)
    def run_and_verify_meanwhile(self, new: dict[str, str], at: int) -> None:
        self._put(new)
        self.one_out.run_and_verify_meanwhile(at)

    @precondition(lambda self: self.one_out.has_plan)
    @rule(setting=st.sampled_from([*SETTINGS]))
    def run_with_other_setting(self, setting: str) -> None:
        if setting != self.one_out.model.setting:
            self.one_out.refuse_other_setting(setting)

    @rule(setting=st.sampled_from([*SETTINGS]))
    def start_anew(self, setting: str) -> None:
        self.one_out.start_anew(setting)

    # --- added columns

    @precondition(lambda self: self.one_out.has_plan)
    @rule()
    def add_columns(self) -> None:
        self.one_out.add()

    @precondition(lambda self: self.one_out.is_sound)
    @rule(at=_MOMENTS)
    def add_columns_and_be_killed(self, at: int) -> None:
        self.one_out.add(killed_at(self.one_out.out, at))

    @precondition(lambda self: self.one_out.has_columns)
    @rule()
    def remove_columns(self) -> None:
        self.one_out.remove()

    @precondition(lambda self: self.one_out.has_columns)
    @rule(at=_MOMENTS)
    def remove_columns_and_be_killed(self, at: int) -> None:
        self.one_out.remove(killed_at(self.one_out.out, at))

    # --- compaction

    @precondition(lambda self: self.one_out.has_plan)
    @rule()
    def compact(self) -> None:
        self.one_out.compact()

    @precondition(lambda self: self.one_out.is_sound and self.one_out.num_files_to_merge)
    @rule(at=_COMPACTION_MOMENTS)
    def compact_and_be_killed(self, at: int) -> None:
        self.one_out.compact(killed_at(self.one_out.out, at))

    # --- damage

    @precondition(lambda self: self.one_out.is_sound and self.one_out.has_faces)
    @rule(
        what=st.sampled_from(FILES), which=st.integers(0, 3), how=st.sampled_from(get_args(Damage)),
        at=st.integers(0, 99),
    )  # fmt: skip
    def damage(self, what: str, which: int, how: Damage, at: int) -> None:
        damage(self.one_out, what, which, how, at / 100)
