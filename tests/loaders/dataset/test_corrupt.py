"""What a training run notices of damage: as many steps, the right labels, a count, and never a silent stand-in."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_dataset import Clip, copy_dataset, make_dataset
from assets_random import examples
from assets_rows import SIDE, damage, make_small, shown, stored_pixels, stored_rows
from assets_storage import FailingStorage
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.augment import AlignedMixup
from facefeed.loaders.dataset.replacement import replacement_candidates
from facefeed.loaders.sampling.balance import Pairs, Quotas
from facefeed.pipeline.dataset.byte_ranges import ByteRangeReader
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.errors import CorruptDataError, StoppedError
from hypothesis import given
from hypothesis import strategies as st

FIELDS = ("image", "label", "face_id", "video_id", "split", "row")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(
        out, **{"num_workers": 0, "image_size": SIDE, "batch_size": 10, "dtype": "uint8", "fields": FIELDS, **options}
    )


def rows_of(out: Path, video: str) -> list[int]:
    return [number for number, row in enumerate(stored_rows(out)) if row["video_id"] == video]


def by_place(out: Path, **options: Any) -> list[tuple[str, int, bytes]]:
    """What stands in each place of an epoch: face, label and pixels."""
    return [
        (face, label, image)
        for batch in loader_of(out, **options)
        for face, label, image in zip(batch["face_id"], batch["label"].tolist(), shown([batch]), strict=True)
    ]


def test_a_damaged_image_is_replaced_by_the_next_of_its_video_and_nothing_else_changes(
    dataset: Path, copy: Path
) -> None:
    sound = by_place(dataset)
    by_face = {face: (face, label, image) for face, label, image in sound}
    anna = rows_of(dataset, "real/anna.mp4")
    faces = [row["face_id"] for row in stored_rows(dataset)]
    stand_ins = {anna[3]: anna[4], anna[10]: anna[12], anna[11]: anna[12], anna[-1]: anna[-2]}
    damage(copy, *stand_ins)
    expected = {faces[row]: faces[stand_in] for row, stand_in in stand_ins.items()}
    loader = loader_of(copy)
    assert len(list(loader)) == len(loader) == 11
    assert by_place(copy) == [by_face[expected.get(face, face)] for face, _, _ in sound]
    assert loader.stats().corrupt == 4
    assert {replacement.face_id: replacement.replaced_by for replacement in loader.stats().replaced} == expected
    assert all("is not the one that was written" in replacement.reason for replacement in loader.stats().replaced)


def test_the_end_of_the_epoch_logs_once_what_was_replaced_by_what(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage(copy, *rows_of(copy, "real/bert.mp4")[2:4])
    loader = loader_of(copy)
    batches = iter(loader)
    for _ in range(11):
        next(batches)
    assert caplog.records == []
    assert next(batches, None) is None
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("facefeed.loaders", logging.WARNING)
    message = record.getMessage()
    assert "epoch 0: 2 damaged images were replaced" in message
    assert f"facefeed verify {copy}" in message
    for face in ("real/bert.mp4/2/0 -> real/bert.mp4/4/0", "real/bert.mp4/3/0 -> real/bert.mp4/4/0"):
        assert face in message
    list(loader)
    assert ["epoch 0" in caplog.records[0].getMessage(), "epoch 1" in caplog.records[1].getMessage()] == [True, True]
    assert len(caplog.records) == 2


def test_an_epoch_without_damage_logs_nothing(dataset: Path, caplog: pytest.LogCaptureFixture) -> None:
    loader = loader_of(dataset)
    list(loader)
    assert (caplog.records, loader.stats().corrupt, loader.stats().replaced) == ([], 0, ())


def test_much_damage_is_counted_in_full_and_logged_in_part(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage(copy, *rows_of(copy, "real/anna.mp4")[:39:2])
    loader = loader_of(copy)
    list(loader)
    assert (loader.stats().corrupt, len(loader.stats().replaced)) == (20, 10)
    assert len(caplog.records[0].getMessage().splitlines()) == 11


def test_damage_that_comes_often_in_an_epoch_is_named_once(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    balance = Quotas({"real": 9, "fake": 1})
    drawn = Counter(loader_of(copy, balance=balance)._epoch_sampler.rows(0).tolist())
    due = Counter(dict([(row, times) for row, times in drawn.items() if times > 1][:2]))
    damage(copy, *due)
    loader = loader_of(copy, balance=balance)
    list(loader)
    assert (loader.stats().corrupt, len(loader.stats().replaced)) == (due.total(), 2)
    first, *named = caplog.records[0].getMessage().splitlines()
    assert f"2 damaged images were replaced, {due.total()} times, by others" in first
    assert len(named) == 2


def test_where_a_whole_video_is_damaged_another_of_its_label_and_split_takes_its_place(copy: Path) -> None:
    for video in ("real/anna.mp4", "fake/bert-talk.mp4"):
        damage(copy, *rows_of(copy, video))
    loader = loader_of(copy)
    counts: Counter[tuple[str, int]] = Counter()
    for batch in loader:
        assert set(batch["split"]) == {"train"}
        counts.update(zip(batch["video_id"], batch["label"].tolist(), strict=True))
    assert counts == {("real/bert.mp4", 0): 12 + 40, ("fake/anna-swap.mp4", 1): 25 + 30}
    assert loader.stats().corrupt == 70


def test_a_long_damaged_video_is_replaced_too(tmp_path: Path) -> None:
    clips = (Clip("real/anna.mp4", 150), Clip("real/bert.mp4", 3))
    make_dataset(tmp_path / "out", (("train", clips),))
    damage(tmp_path / "out", *rows_of(tmp_path / "out", "real/anna.mp4"))
    videos = {video for batch in loader_of(tmp_path / "out") for video in batch["video_id"]}
    assert videos == {"real/bert.mp4"}


@pytest.fixture(scope="module")
def long_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of 100 frames, and a hundred of one."""
    out = tmp_path_factory.mktemp("loaders") / "out"
    make_dataset(out, (("train", (Clip("real/anna.mp4", 100), *(Clip(f"real/b{n:02}.mp4", 1) for n in range(100)))),))
    return out


def test_where_a_half_of_a_video_is_damaged_its_sound_half_takes_the_place(long_dataset: Path) -> None:
    index, selected = Index(long_dataset), np.arange(200, dtype=np.uint32)
    anna = rows_of(long_dataset, "real/anna.mp4")
    for sound in (range(50), range(50, 100), range(3), range(99, 100)):
        for row in {*range(100)} - {*sound}:
            candidates = replacement_candidates(index, anna[row], selected)
            assert next(other for other in candidates if other not in anna or other - anna[0] in sound) in anna


@pytest.mark.parametrize("damaged", [range(40), range(30, 90), range(5, 98)], ids=str)
def test_where_the_videos_around_are_damaged_too_a_sound_one_further_on_takes_the_place(
    long_dataset: Path, damaged: range
) -> None:
    index = Index(long_dataset)
    videos = [row for number in range(100) for row in rows_of(long_dataset, f"real/b{number:02}.mp4")]
    selected, broken = np.array(sorted(videos), np.uint32), {videos[number] for number in damaged}
    for row in broken:
        candidates = list(replacement_candidates(index, row, selected))
        assert {*candidates} - broken
        assert len(candidates) == len({*candidates}) < 80


def test_where_nothing_like_it_is_sound_the_error_says_so(copy: Path) -> None:
    damage(copy, *rows_of(copy, "real/dora.mp4"))
    with pytest.raises(
        CorruptDataError, match=r"facefeed verify .*; and no sound image of its video or label is among"
    ):
        list(loader_of(copy, split="val"))


def test_on_corrupt_raise_stops_at_the_first(copy: Path) -> None:
    damage(copy, rows_of(copy, "real/dora.mp4")[3])
    loader = loader_of(copy, split="val", on_corrupt="raise", batch_size=2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(
        CorruptDataError, match=r"the image at byte \d+ is not the one that was written.*facefeed verify"
    ):
        next(batches)


def test_a_file_that_is_gone_always_stops(copy: Path) -> None:
    path = copy / stored_rows(copy)[0]["file"]
    path.unlink()
    with pytest.raises(CorruptDataError, match=rf"{path.name}: No such file.*facefeed verify"):
        list(loader_of(copy, split=None))


def test_a_disk_that_fails_damages_no_image_and_ends_the_run_where_that_lasts(dataset: Path) -> None:
    storage, loader = FailingStorage(errno.EIO, errno.ESTALE), loader_of(dataset, split="val", batch_size=5)
    loader.dataset._read_image = StoredImages(loader.dataset.index, ByteRangeReader(loader.dataset.out, storage)).image
    assert sum(len(batch["label"]) for batch in loader) == 15
    assert (loader.stats().corrupt, len(storage.waited)) == (0, 2)
    storage.failures = [errno.EIO] * 6
    with pytest.raises(StoppedError, match="EIO"):
        list(loader)
    assert loader.stats().corrupt == 0


def test_a_file_that_was_cut_loses_its_end_alone(copy: Path) -> None:
    rows = stored_rows(copy)
    train = [number for number, row in enumerate(rows) if row["split"] == "train"]
    last = train[-1]
    path, offset = copy / rows[last]["file"], Index(copy).value("image_offset", last)
    path.write_bytes(path.read_bytes()[: offset + 1])
    loader = loader_of(copy)
    assert len(list(loader)) == 11
    assert loader.stats().corrupt == 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_same_images_take_the_places_with_any_ranks_and_on_every_run(copy: Path, ranks: int) -> None:
    damage(copy, *rows_of(copy, "real/anna.mp4")[::3], *rows_of(copy, "real/bert.mp4"))
    samples = by_place(copy, batch_size=12)
    assert by_place(copy, batch_size=12) == samples
    parts = [
        [zip(batch["face_id"], batch["label"].tolist(), shown([batch]), strict=True)
         for batch in loader_of(copy, batch_size=12 // ranks, rank=rank, num_replicas=ranks)]
        for rank in range(ranks)
    ]  # fmt: skip
    assert [sample for step in zip(*parts, strict=True) for part in step for sample in part] == samples


@pytest.mark.parametrize("balance", [Quotas({"real": 1, "fake": 1}), Pairs()], ids=["quotas", "pairs"])
def test_balance_holds_over_damage(copy: Path, balance: Any) -> None:
    damage(copy, *rows_of(copy, "real/bert.mp4")[:5], *rows_of(copy, "fake/anna-swap.mp4")[7:9])
    loader = loader_of(copy, balance=balance)
    for batch in loader:
        assert batch["label"].sum() * 2 == len(batch["label"])
    assert loader.stats().corrupt > 0


def test_a_face_that_stands_in_for_half_of_a_pair_is_not_blended_with_the_other_half(copy: Path) -> None:
    reals, fakes = rows_of(copy, "real/anna.mp4"), rows_of(copy, "fake/anna-swap.mp4")
    damaged_real, damaged_fake = reals[4], fakes[9]
    damage(copy, damaged_real, damaged_fake)
    loader = loader_of(copy, balance=Pairs(), shuffle=False, face_transform=[AlignedMixup(p=1)])
    stored, unmixed = stored_rows(copy), []
    for batch in loader:
        for real, fake in zip(range(0, len(batch["row"]), 2), range(1, len(batch["row"]), 2), strict=True):
            rows = batch["row"][[real, fake]].tolist()
            if float(batch["label"][fake]).is_integer():
                unmixed.append(rows)
                shown_fake = batch["image"][fake].permute(1, 2, 0).numpy()
                assert (shown_fake == stored_pixels(stored[rows[1]])).all()
    assert unmixed == [[reals[5], fakes[4]], [reals[9], fakes[10]]]
    assert loader.stats().corrupt == 2


def test_labels_alone_are_those_of_the_images_that_came(dataset: Path, copy: Path) -> None:
    damage(copy, rows_of(copy, "real/anna.mp4")[0])
    label_lists = [labels.tolist() for _, labels in loader_of(copy, fields=None)]
    assert label_lists == [labels.tolist() for _, labels in loader_of(dataset, fields=None)]


def test_a_transform_that_goes_wrong_is_no_damage(dataset: Path) -> None:
    def broken(image: Any) -> Any:
        raise ZeroDivisionError("a bug in the transform")

    with pytest.raises(ZeroDivisionError, match="a bug in the transform"):
        next(iter(loader_of(dataset, transform=broken)))


def test_the_rule_for_stand_ins(dataset: Path) -> None:
    index = Index(dataset)
    rows = np.arange(len(index), dtype=np.uint32)
    anna, bert = (rows_of(dataset, f"real/{name}.mp4") for name in ("anna", "bert"))
    candidates = list(replacement_candidates(index, anna[37], rows))
    assert candidates[:3] == [anna[38], anna[39], anna[36]]
    assert candidates[:-12] == [*anna[38:], *anna[36:4:-1], anna[0]]
    assert candidates[-12:] == bert  # the only other real video of the split; of several, one row of each comes first
    assert list(replacement_candidates(index, bert[-1], rows)) == [
        *bert[-2::-1],
        *anna[:32],
        *anna[38:],
        *anna[37:31:-1],
    ]
    fake = rows_of(dataset, "fake/dora-swap.mp4")
    assert list(replacement_candidates(index, fake[0], rows)) == fake[1:]


def test_no_row_that_the_filters_leave_out_stands_in_for_a_damaged_one(copy: Path) -> None:
    fake, other = rows_of(copy, "fake/anna-swap.mp4"), rows_of(copy, "fake/bert-talk.mp4")
    damage(copy, *fake[:3], *other[:6])
    counts = Counter(
        (video, int(frame))
        for batch in loader_of(
            copy,
            filters=[("label", "==", 1), ("frame_index", "<", 8)],
            frames_per_video=4,
            fields=(*FIELDS, "frame_index"),
        )
        for video, frame in zip(batch["video_id"], batch["frame_index"], strict=True)
    )
    # Selected are frames 1, 3, 5 and 7; sound of them 3, 5, 7 of the first and 7 of the second.
    assert counts == {
        ("fake/anna-swap.mp4", 3): 2, ("fake/anna-swap.mp4", 5): 1, ("fake/anna-swap.mp4", 7): 1,
        ("fake/bert-talk.mp4", 7): 4,
    }  # fmt: skip


def test_where_the_filters_leave_nothing_sound_the_error_says_so(copy: Path) -> None:
    damage(copy, rows_of(copy, "real/anna.mp4")[5])
    options: dict[str, Any] = {"filters": [("video_id", "==", "real/anna.mp4"), ("frame_index", "==", 5)]}
    with pytest.raises(CorruptDataError, match="no sound image of its video or label is among the selected rows"):
        list(loader_of(copy, **options))


def test_a_stand_in_keeps_the_value_that_quotas_are_of(copy: Path) -> None:
    damage(copy, *rows_of(copy, "fake/anna-swap.mp4"))
    loader = loader_of(copy, balance=Quotas({"swap": 1, "talk": 1}, column="method"), fields=(*FIELDS, "method"))
    with pytest.raises(CorruptDataError, match="no sound image"):  # of another video there is none by this method
        list(loader)


@examples(100, same_fixtures=True)
@given(st.integers(0, 14), st.floats(0, 1), st.integers(1, 255))
def test_any_single_changed_byte_is_found(
    dataset: Path, tmp_path: Path, number: int, fraction: float, flipped: int
) -> None:
    out = tmp_path / "out"
    if not out.exists():
        copy_dataset(dataset, out)
    index = Index(out)
    row = int(index.rows_where("split", "val")[number])
    size = index.value("image_bytes", row)
    path, position = (
        out / index.value("file", row),
        index.value("image_offset", row) + min(int(fraction * size), size - 1),
    )
    content = path.read_bytes()
    path.write_bytes(content[:position] + bytes([content[position] ^ flipped]) + content[position + 1 :])
    loader = loader_of(out, split="val")
    batches = list(loader)
    path.write_bytes(content)
    assert loader.stats().corrupt == 1
    (replaced,) = loader.stats().replaced
    assert replaced.face_id == index.value("face_id", row)
    face_ids = [face for batch in batches for face in batch["face_id"]]
    images = dict(zip(face_ids, shown(batches), strict=True))
    assert replaced.face_id not in face_ids
    sound = {face: image for face, _, image in by_place(dataset, split="val")}
    assert images.items() <= sound.items()
