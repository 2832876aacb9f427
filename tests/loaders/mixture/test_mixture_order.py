"""What a user of a mixture notices of its order: shares of every batch, passes without repetition, length of epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_mixtures import FACES, OFFSETS, datasets_of, epochs_of, make_three
from facefeed.loaders import FaceDataLoader, Pairs, Quotas, Weights
from facefeed.pipeline.errors import UsageError

WEIGHTS = {"ffpp": 0.2, "celebdf": 0.3, "dfdc": 0.5}


@pytest.fixture(scope="module")
def outs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_three(tmp_path_factory.mktemp("mixture"))


def loader_of(outs: list[str], batch_size: int = 8, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(outs, batch_size, **{"num_workers": 0, "image_size": 8, **options})


@pytest.mark.parametrize("batch_size", [7, 32, 64])
@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({"weights": WEIGHTS}, [0.2, 0.3, 0.5]),
        ({"weights": [1, 1, 1]}, [1 / 3] * 3),
        ({"temperature": 2}, np.sqrt([60, 24, 9]) / np.sqrt([60, 24, 9]).sum()),
        ({"temperature": 1}, np.array([60, 24, 9]) / 93),
        ({}, np.array([60, 24, 9]) / 93),
    ],
    ids=["weights", "equal", "temperature 2", "temperature 1", "sizes"],
)
@pytest.mark.parametrize("window", [1, 100])
def test_any_hundred_batches_have_the_shares_to_rounding(
    outs: list[str], options: dict[str, Any], shares: list[float], batch_size: int, window: int
) -> None:
    loader = loader_of(outs, batch_size, epoch_length=150, **options)
    source = datasets_of(epochs_of(loader, 3))  # across the ends of epochs too
    for number, share in enumerate(shares):
        seen = np.cumsum(np.append(0, source == number))[::batch_size]
        of_windows = seen[window:] - seen[:-window]
        assert len(of_windows) == 3 * 150 + 1 - window
        assert np.abs(of_windows - share * window * batch_size).max() < 3  # in an epoch 2


def test_each_batch_has_its_share_of_each_class_in_each_dataset(outs: list[str]) -> None:
    loader = loader_of(outs, 40, weights=[1, 1, 2], balance=Quotas({"real": 1, "fake": 1}), epoch_length=50)
    labels = loader.dataset.index.numbers("label", np.arange(len(loader.dataset.index)))
    for rows in epochs_of(loader, 2):
        source = datasets_of([rows])
        for number, share in enumerate([10, 10, 20]):
            counts = np.bincount(labels[rows[source == number]], minlength=2)
            assert counts[0] == counts[1]
            assert abs(counts.sum() - share) <= 2  # a unit of a real and a fake


@pytest.mark.parametrize(
    "options",
    [{}, {"weights": WEIGHTS}, {"temperature": 3}, {"weights": WEIGHTS, "shuffle": "window", "window_images": 128},
     {"weights": WEIGHTS, "epoch_length": "celebdf", "shuffle": False}],
    ids=["sizes", "weights", "temperature", "window", "unshuffled"],
)  # fmt: skip
def test_no_face_comes_twice_before_all_others_of_its_dataset_came(outs: list[str], options: dict[str, Any]) -> None:
    loader = loader_of(outs, **options)
    shuffled = options.get("shuffle", True)
    rows = np.concatenate(epochs_of(loader, 5 if shuffled else 1))
    selected = loader.dataset.rows
    for number, faces in enumerate(FACES.values()):
        own = rows[datasets_of([rows]) == number]
        all_faces = selected[datasets_of([selected]) == number]
        passes = [own[start : start + faces] for start in range(0, len(own), faces)]
        assert len(all_faces) == faces
        for each in passes:
            assert len(set(each.tolist())) == len(each)
            assert set(each.tolist()) <= set(all_faces.tolist())
        whole = [each.tolist() for each in passes if len(each) == faces]
        if shuffled and faces > 5:
            assert len({tuple(each) for each in whole}) == len(whole)  # in a new order


def test_with_quotas_no_face_comes_twice_before_all_others_of_its_class_and_dataset_came(outs: list[str]) -> None:
    loader = loader_of(outs, weights=WEIGHTS, balance=Quotas({"real": 1, "fake": 1}))
    rows = np.concatenate(epochs_of(loader, 5))
    labels, source = loader.dataset.index.numbers("label", rows), datasets_of([rows])
    for number, faces in enumerate(FACES.values()):
        for label, of_class in ((0, faces // 3), (1, faces - faces // 3)):
            own = rows[(source == number) & (labels == label)].tolist()
            assert len(own) > of_class
            for start in range(0, len(own), of_class):
                assert len(set(own[start : start + of_class])) == len(own[start : start + of_class])


def test_some_dataset_is_repeated_within_an_epoch_in_these_tests(outs: list[str]) -> None:
    passes = {each.name: each.passes for each in loader_of(outs, weights=WEIGHTS).describe().datasets}
    assert passes["dfdc"] > 5
    assert passes["ffpp"] < 0.5


def test_without_weights_an_epoch_has_every_face_once(outs: list[str]) -> None:
    for options in ({}, {"shuffle": False}, {"temperature": 1}, {"split": "val"}, {"split": None}):
        loader = loader_of(outs, **options)
        for epoch in range(2):
            loader.set_epoch(epoch)
            rows = np.concatenate([request.rows for request in loader.sampler])
            assert np.sort(rows).tolist() == loader.dataset.rows.tolist()
            assert len(rows) == {"train": 93, "val": 15, None: 108}[options.get("split", "train")]


def test_unshuffled_epochs_are_all_the_same(outs: list[str]) -> None:
    loader = loader_of(outs, split="val", weights=WEIGHTS, epoch_length=2)
    first, second = (np.concatenate(epochs_of(loader)) for _ in range(2))
    loader.set_epoch(1)
    assert first.tolist() == second.tolist() == np.concatenate([each.rows for each in loader.sampler]).tolist()


def test_an_epoch_may_be_a_pass_through_one_dataset(outs: list[str]) -> None:
    for number, name in enumerate(FACES):
        loader = loader_of(outs, weights=WEIGHTS, epoch_length=name)
        for epoch in range(3):
            loader.set_epoch(epoch)
            rows = np.concatenate([request.rows for request in loader.sampler])
            own = rows[datasets_of([rows]) == number]
            assert len(own) == len(set(own.tolist())) == FACES[name]


def test_an_epoch_may_be_a_number_of_batches(outs: list[str]) -> None:
    for options in ({"batch_size": 8}, {"batch_size": 6, "rank": 1, "num_replicas": 3}):
        loader = loader_of(outs, epoch_length=11, weights=WEIGHTS, **options)
        assert len(loader) == len(epochs_of(loader)) == 11
        assert {len(rows) for rows in epochs_of(loader)} == {options["batch_size"]}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("balance", [None, Quotas({"real": 1, "fake": 2}), Pairs()], ids=["all", "quotas", "pairs"])
def test_ranks_share_one_global_sequence(outs: list[str], ranks: int, balance: Any) -> None:
    options = {"weights": WEIGHTS, "balance": balance}
    whole = epochs_of(loader_of(outs, 6 * ranks, **options), 2)
    parts = [epochs_of(loader_of(outs, 6, rank=rank, num_replicas=ranks, **options), 2) for rank in range(ranks)]
    together = [np.concatenate(step) for step in zip(*parts, strict=True)]
    assert [rows[: len(step)].tolist() for step, rows in zip(whole, together, strict=True)] == [
        step.tolist() for step in whole
    ]


def test_a_fake_is_paired_with_its_source_in_its_own_dataset(outs: list[str]) -> None:
    loader = loader_of(outs, balance=Pairs(), weights=WEIGHTS)
    value = loader.dataset.index.value
    for rows in epochs_of(loader, 2):
        source = datasets_of([rows])
        assert source[::2].tolist() == source[1::2].tolist()
        for real, fake in rows.reshape(-1, 2).tolist():
            assert value("video_id", real) == value("source_id", fake)


def test_weights_of_methods_hold_within_each_dataset(outs: list[str]) -> None:
    balance = Weights({"swap": 0.0}, column="method")
    loader = loader_of(outs, balance=balance, weights=[1, 1, 1], epoch_length=40)
    rows = np.concatenate(epochs_of(loader))
    assert "swap" not in {loader.dataset.index.value("method", row) for row in rows.tolist()}
    assert np.bincount(datasets_of([rows])).tolist() == pytest.approx([320 / 3] * 3, abs=1)


def test_the_order_depends_on_seed_and_epoch_and_not_on_the_folders_names(outs: list[str]) -> None:
    order = [rows.tolist() for rows in epochs_of(loader_of(outs))]
    named = dict(zip(("one", "two", "three"), outs, strict=True))
    assert [rows.tolist() for rows in epochs_of(loader_of(named))] == order  # type: ignore[arg-type]
    assert [rows.tolist() for rows in epochs_of(loader_of(outs, seed=1))] != order
    assert [rows.tolist() for rows in epochs_of(loader_of(outs), 2)[len(order) :]] != order


def test_a_single_dataset_in_a_list_is_a_mixture_of_one(outs: list[str]) -> None:
    loader = loader_of(outs[:1])
    assert np.sort(np.concatenate(epochs_of(loader))).tolist() == list(range(FACES["ffpp"]))
    assert OFFSETS[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1, 2]}, "weights=.*must be 3 numbers, one for each dataset; try {'ffpp': 1"),
        ({"weights": {"ffpp": 1, "dfdc": 1}}, "must have a weight for each dataset"),
        ({"weights": [1, 0, 1]}, "celebdf=0: must be a number above 0 and below 1e30; leave a dataset out"),
        ({"weights": [1, float("nan"), 1]}, "celebdf=nan"),
        ({"weights": [1, 10**400, 1]}, "celebdf=1000.*must be a number above 0"),
        ({"weights": [1, 1e308, 1]}, "celebdf=1e.308"),
        ({"weights": [1, "2", 1]}, "celebdf='2'"),
        ({"weights": 3}, "weights=3: must be 3 numbers"),
        ({"weights": [1, 1, 1], "temperature": 2}, "both define the shares"),
        ({"temperature": 0}, "temperature=0: must be a finite number above 0"),
        ({"temperature": float("inf")}, "temperature=inf"),
        ({"epoch_length": "ff"}, "epoch_length='ff': must be one of ffpp, celebdf, dfdc"),
        ({"epoch_length": 0}, "epoch_length=0: must be at least 1"),
        ({"epoch_length": 1.5}, "epoch_length=1.5: must be a whole number"),
        ({"max_per_video": 2}, "max_per_video=2: cannot hold in a mixture.*frames_per_video"),
        ({"balance": Quotas({"real": 1, "mask": 1})}, "ffpp: 'mask': no label is called so"),
        ({"balance": Quotas({"real": 1, "fake": 2})}, "batch_size=8: cannot hold .* exactly; take a multiple of 3"),
        ({"balance": Quotas}, "balance=.*must be a balance"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_hold_are_refused_with_a_remedy(
    outs: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        loader_of(outs, **options)


def test_the_state_of_one_dataset_has_the_form_that_earlier_versions_wrote(outs: list[str]) -> None:
    for balance, text in ((None, "Natural()"), (Quotas({"real": 1}), "Quotas(shares={'real': 1}, column='label')")):
        state = FaceDataLoader(outs[0], 8, num_workers=0, balance=balance).state_dict()
        settings = "Shuffling(mode='full', window_images=16384)"
        assert state["order"] == f"{settings} {text} max_per_video=None drop_last=False"
        assert list(state) == ["version", "fingerprint", "rows", "order", "seed", "global_batch", "epoch", "images"]
        assert state["version"] == 2


@pytest.mark.parametrize(
    "options",
    [{"weights": [1]}, {"temperature": 2}, {"epoch_length": 5}, {"rename": {}}],
    ids=lambda each: next(iter(each)),
)
def test_what_only_mixtures_have_is_refused_for_one_dataset(outs: list[str], options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"{next(iter(options))}=.*for several datasets"):
        FaceDataLoader(Path(outs[0]), num_workers=0, **options)
