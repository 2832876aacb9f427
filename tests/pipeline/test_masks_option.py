"""Masks of the set's own and comparisons are never mixed in one dataset by accident."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dryrun.report import print_dry_run
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.inspect.findings.collect import collect_findings
from facefeed.pipeline.inspect.inspection import inspect_dataset
from facefeed.pipeline.inspect.page import write_page
from facefeed.pipeline.manipulation import mask
from facefeed.pipeline.planning.options import Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.report import print_summary, summary_json
from facefeed.pipeline.sources import Entry, list_source

MakeSource = Callable[..., Path]
Run = Callable[..., Summary]

ORIGINAL = "original_sequences/youtube/c23/videos/{}.mp4"
FAKE = "manipulated_sequences/Deepfakes/c23/videos/{}.mp4"
MASK = "manipulated_sequences/Deepfakes/masks/videos/{}.mp4"
PAIRS = {"033": "033_097", "035": "035_036", "044": "044_945"}


@pytest.fixture
def source(make_source: MakeSource) -> Path:
    """Three originals with a fake each, without masks; the masks to come are videos of white bars."""
    return make_source(*map(ORIGINAL.format, PAIRS), *map(FAKE.format, PAIRS.values()))


@pytest.fixture
def run(source: Path, tmp_path: Path, small_options: Options, cluster_address: str) -> Run:
    def run(**options: Any) -> Summary:
        chosen = Options(sampling=small_options.sampling, keep=small_options.keep, size_px=64, **options)
        settings = {"detector": FixedBoxDetector(), "scheduler": cluster_address}
        return precompute(source, tmp_path / "out", options=chosen, **settings)

    return run


@pytest.fixture
def add_masks(make_source: MakeSource, source: Path) -> Callable[..., None]:
    def add_masks(*names: str) -> None:
        make_source(*map(MASK.format, names or PAIRS.values()), root=source)

    return add_masks


def config_of(options: Options, **more: Any) -> dict[str, Any]:
    return options.to_config(FixedBoxDetector(), ("real", "fake"), **more)


def test_of_a_set_without_masks_nothing_changes() -> None:
    config = config_of(Options())
    assert config["mask"] == mask.METHOD
    assert "masks" not in config
    assert hash_config(config) == hash_config(config_of(Options(masks="source")))
    assert config_of(Options(), has_own_masks=True)["mask"] == f"own-24, else {mask.METHOD}"
    with pytest.raises(UsageError, match="masks='none': must be own or source"):
        Options(masks="none")  # type: ignore[arg-type]


def test_the_ids_of_units_without_own_masks_are_what_they_were() -> None:
    """A unit that was split before own masks were read finds its halves again."""
    make = {"config_hash": "c", "salt": "0"}
    assert Unit.make([Entry(video_id="a.mp4")], "train", **make).unit_id == "0aeb939c4f9f0314950da13abf3a7425"
    marked = Entry(video_id="a.mp4", mask_id="masks/a.mp4", mask_size_bytes=7)
    assert Unit.make([marked], "train", **make).unit_id != "0aeb939c4f9f0314950da13abf3a7425"


def test_masks_that_come_later_are_refused_with_both_ways_out(run: Run, add_masks: Callable[..., None]) -> None:
    before = run().manifest
    add_masks()
    with pytest.raises(RefusedError, match=r"mask: lab.* there, own-24, else lab.* now\).*--masks source goes on"):
        run()
    continued = run(masks="source")
    assert (continued.manifest.fingerprint, continued.totals.inputs) == (before.fingerprint, 0)


def test_a_dataset_with_own_masks_is_not_continued_without_them(run: Run, add_masks: Callable[..., None]) -> None:
    add_masks()
    assert run().manifest.faces_with_own_mask == 15
    with pytest.raises(RefusedError, match=r"without --masks source, masks that SRC has of its own are used"):
        run(masks="source")


def test_a_mask_that_comes_goes_or_is_downloaded_anew_has_its_fake_done_again(
    run: Run, add_masks: Callable[..., None], source: Path
) -> None:
    add_masks("033_097", "035_036")
    broken = source / MASK.format("035_036")
    whole = broken.read_bytes()
    broken.write_bytes(whole[:900])
    first = run().manifest
    assert (first.faces_with_own_mask, first.own_masks_unused) == (5, {"truncated": 1})
    broken.write_bytes(whole)
    add_masks("044_945")
    second = run()
    assert {entry.video_id for entry in second.changes.changed} == {FAKE.format("035_036"), FAKE.format("044_945")}
    assert (second.manifest.faces_with_own_mask, second.manifest.own_masks_unused) == (15, {})
    shutil.rmtree(source / MASK.format("").rpartition("/")[0])
    third = run()
    assert (third.manifest.faces_with_own_mask, third.manifest.faces_without_mask) == (0, 0)
    assert third.manifest.config == first.config


def test_report_json_and_inspect_name_masks_that_could_not_be_used(
    run: Run, add_masks: Callable[..., None], source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_masks()
    (source / MASK.format("033_097")).write_bytes(b"not a video")
    summary = run()
    print_summary(summary, source, tmp_path / "out")
    shown = " ".join(capsys.readouterr().err.split())
    assert "masks of the set's own: 10 faces" in shown
    assert "that could not be used, or not for all frames: 1 not_video; fakes without any were compared" in shown
    figures = summary_json(summary)
    assert (figures["faces_with_own_mask"], figures["own_masks_unused"]) == (10, {"not_video": 1})
    assert Manifest.read(tmp_path / "out") == summary.manifest
    inspection = inspect_dataset(tmp_path / "out")
    findings = collect_findings(inspection.statistics, inspection.outcomes, pictures_read=1, pictures_unreadable=0)
    assert "Masks of the set's own that could not be used, or not for all frames: 1 not_video." in [
        finding.what for finding in findings
    ]


def test_a_dry_run_says_for_how_many_inputs_a_mask_is_there(
    add_masks: Callable[..., None], source: Path, tmp_path: Path, small_options: Options, cluster_address: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    add_masks("033_097", "035_036")
    settings = {"detector": FixedBoxDetector(), "scheduler": cluster_address}
    result = dry_run(source, tmp_path / "out", options=small_options, **settings)
    assert result.survey.own_masks == 2
    print_dry_run(result, source, 0)
    shown = " ".join(capsys.readouterr().err.split())
    assert "masks of the set's own are here for 2 inputs" in shown
    assert "3 of 3 inputs that name an original have it here" in shown
    options = Options(sampling=small_options.sampling, keep=small_options.keep, masks="source")
    assert dry_run(source, tmp_path / "out", options=options, **settings).survey.own_masks == 0


def test_fakes_are_shown_with_their_masks_where_the_dataset_has_no_originals(
    run: Run, add_masks: Callable[..., None], source: Path, tmp_path: Path
) -> None:
    add_masks()
    shutil.rmtree(source / "original_sequences")
    run()
    inspection = inspect_dataset(tmp_path / "out")
    assert len(inspection.sheets.changed) == len(PAIRS)
    assert all(pair.source is None and pair.fake.mask_uri for pair in inspection.sheets.changed)
    write_page(inspection, tmp_path / "page.html")
    assert "fake with its mask" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_table_names_masks_and_says_which_are_missing(make_source: MakeSource) -> None:
    source = make_source("a.mp4", "b.mp4", "c.mp4", "masks/a.mp4")
    table = source / "list.csv"
    table.write_text("path,label,mask\na.mp4,fake,masks/a.mp4\nb.mp4,fake,masks/b.mp4\nc.mp4,real,\n")
    listing = list_source(table)
    assert {entry.video_id: entry.mask_id for entry in listing.entries} == {
        "a.mp4": "masks/a.mp4", "b.mp4": None, "c.mp4": None,
    }  # fmt: skip
    assert listing.missing == ["masks/b.mp4"]


def test_a_layout_that_gives_masks_outside_the_source_is_refused(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("a.mp4")

    class Outside:
        name, needs = "outside", "anything"

        def fits(self, src: Path) -> bool:
            return True

        def read(self, src: Path, allowed: Any) -> Any:
            listing = list_source(src, "folder")
            entries = [Entry(video_id="a.mp4", label=1, mask_id="../elsewhere.mp4")]
            return type(listing)(layout=self.name, root=src, labels=listing.labels, entries=entries)

    with pytest.raises(UsageError, match=r"mask_id='\.\./elsewhere\.mp4': must be a path below the root"):
        prepare_job(source, tmp_path / "out", layout=Outside(), detector=FixedBoxDetector())


def test_the_command_takes_the_option(make_source: MakeSource, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(main, ["precompute", str(tmp_path), str(tmp_path / "out"), "--masks", "all"])
    assert outcome.exit_code == 2
    assert "'own', 'source'" in outcome.output
