"""Outcomes of the inputs: which failed or are partial, and why; what is in more than one split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ...console import plural
from ...dataset.added_columns import column_files
from ...dataset.index import current_index_path
from ...dataset.manifest import InputOutcome, Manifest
from ...dataset.out import OutPaths
from ...errors import CorruptDataError
from ...planning.content_hash import EqualContent, find_equal_content
from ...planning.failure_limit import Failure
from ...planning.options import hash_config
from ...planning.plan import Plan
from ...planning.run_state import RecordedRunState
from ...sources import LinkCoverage, misspelt_classes, unknown_real_class
from .split_crossings import Crossing, find_crossings


@dataclass(frozen=True)
class Outcomes:
    """The manifest of a dataset, its failed and partial inputs by name, and what crosses splits.

    `index_out`: the folder of the index: OUT or, of one in a store, of a cache.
    `equal_content`: groups of inputs that have the same bytes.
    `link_coverage`: for how many videos original, recording and person are known, so that crossings can be checked.
    `dropped_identities`: people who were ignored when splits were drawn, because they link too many videos.
    `unknown_real_class`: what follows where no class is known to be real, as a clause. `inputs_of_class`: number of
    videos with rows by the name of their class, without those of no known label.
    """

    paths: OutPaths
    index_out: Path
    manifest: Manifest
    failures: list[Failure]
    partial: list[InputOutcome]
    crossings: list[Crossing]
    equal_content: EqualContent
    link_coverage: LinkCoverage
    dropped_identities: frozenset[str]
    unknown_real_class: str | None = None
    inputs_of_class: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: OutPaths, manifest: Manifest, video_ids: Container[str], *, index_out: Path) -> Self:
        """Reads the plan and all receipts; raises `CorruptDataError` where the plan or the manifest is damaged.

        `video_ids`: the videos that have rows.
        """
        plan = Plan.load(paths)
        run_state = RecordedRunState(paths, plan, hash_config(manifest.config))
        removed = {*manifest.removed}
        incomplete = [outcome for _, outcome in run_state.outcomes() if outcome.outcome in ("failed", "partial")]
        failed = [
            Failure(outcome.video_id, str(outcome.reason), outcome.detail or "")
            for outcome in incomplete
            if outcome.outcome == "failed" and outcome.video_id not in removed
        ]
        partial = [outcome for outcome in incomplete if outcome.outcome == "partial"]
        entries = [entry for video_id, (entry, _) in plan.planned_videos().items() if video_id in video_ids]
        if max((entry.label for entry in entries), default=-1) >= len(manifest.labels):
            raise CorruptDataError(
                f"{paths.manifest}: names {plural(len(manifest.labels), 'class', 'classes')}, fewer than the plan; run "
                "the same `facefeed precompute` command again"
            )
        return cls(
            paths=paths,
            index_out=index_out,
            manifest=manifest,
            failures=sorted([*_refused(manifest), *failed], key=lambda failure: (failure.reason, failure.video_id)),
            partial=sorted(partial, key=lambda outcome: outcome.video_id),
            equal_content=find_equal_content(run_state, manifest.labels),
            crossings=find_crossings(plan, video_ids),
            link_coverage=LinkCoverage.from_entries(entries, manifest.labels),
            dropped_identities=frozenset(plan.dropped_identities()),
            unknown_real_class=unknown_real_class(entries, manifest.labels),
            inputs_of_class=Counter(manifest.labels[entry.label] for entry in entries if entry.label >= 0),
        )

    @property
    def misspelt_classes(self) -> dict[str, str]:
        """Classes that may be others misspelt, with these."""
        return misspelt_classes(self.inputs_of_class)

    @property
    def input_counts(self) -> dict[str, Any]:
        """The manifest's number of inputs by outcome."""
        return self.manifest.inputs

    @property
    def num_failed(self) -> int:
        """Number of failed inputs."""
        return sum(self.input_counts["failed"].values())

    @property
    def name(self) -> str:
        """The last part of the folder or the address."""
        return Path(self.paths.place).name or self.paths.place

    @cached_property
    def size_bytes(self) -> int:
        """Size of the files of rows, of those of added columns, and of the index together."""
        of_columns = sum(self.paths.files.size_bytes(path) or 0 for path in column_files(self.paths))
        return self.manifest.bytes + of_columns + current_index_path(self.index_out).stat().st_size


def _refused(manifest: Manifest) -> Iterator[Failure]:
    for refused in manifest.refused:
        yield Failure(str(refused["video_id"]), str(refused["reason"]), refused["detail"] or "")
