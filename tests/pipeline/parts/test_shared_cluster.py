"""Parts of a job that join one running cluster: the start and the end of one leave the others at work."""

from __future__ import annotations

from pathlib import Path

from assets_parts import MakeSource
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.execution.cluster import remote_client
from facefeed.pipeline.execution.unit_task import install_unit_workers, run_unit
from facefeed.pipeline.execution.workers import WorkerPool
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.job_share import JobShare
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import list_source


def test_a_part_goes_on_while_another_joins_and_leaves_its_cluster(
    make_source: MakeSource, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    listing = list_source(make_source("real/a.mp4", "real/b.mp4"))
    job = JobSpec(
        root=listing.root, out=tmp_path / "out", options=small_options, detector=FixedBoxDetector(),
        labels=listing.labels, config_hash="c",
    )  # fmt: skip
    make_folders(job.paths)
    early, late = (Unit.make([entry], "train", config_hash="c", salt="0") for entry in listing.entries)
    with remote_client(cluster_address) as client:

        def rows_of(unit: Unit, plugin: str) -> int:
            rows: int = client.submit(run_unit, unit, plugin, pure=False).result().receipt.rows
            return rows

        with install_unit_workers(client, job, [], local=False, job_share=JobShare(1, 2)) as first:
            with install_unit_workers(client, job, [], local=False, job_share=JobShare(2, 2)) as second:
                assert rows_of(early, second) == 5
            assert rows_of(late, first) == 5


def test_a_job_knows_whether_others_are_at_work_on_its_cluster(cluster_address: str) -> None:
    with remote_client(cluster_address) as mine, remote_client(cluster_address) as other:
        own = mine.submit(abs, -1, pure=False)
        pool = WorkerPool(mine, "plugin")
        assert own.result() == 1
        assert not pool.is_shared()
        task = other.submit(abs, -2, pure=False)
        assert task.result() == 2
        assert pool.is_shared()
