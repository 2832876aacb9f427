"""What users of each training loop notice: the guide's script, killed in mid-epoch, goes on as if nothing had been."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import torch
from assets_docs import GUIDES, blocks
from assets_loops import RANKS, SIDE_PX, names_by_checksum, run_loop, steps_of, weights_of
from assets_train import TRAIN_FACES, small_dataset

STEPS, KILLED_AT, SAVED_AT = 7, 12, 10
"""An epoch has seven steps, of eight faces on two ranks; the last checkpoint before the kill has ten of the steps."""
_LAYERS = "[('Conv2d', (3, 8, 3, 2)), ('ReLU', ()), ('AdaptiveAvgPool2d', (4,)), ('Flatten', ()), ('Linear', (128, 2))]"
SMALLER = {
    ", image_size=112": "",
    '"out", batch_size=64': f'"../out", batch_size=4, image_size={SIDE_PX}, num_workers=0',
    "torchvision.models.resnet18(num_classes=2)":
        f"torch.nn.Sequential(*(getattr(torch.nn, name)(*sizes) for name, sizes in {_LAYERS}))",
    "% 500": "% 3",
    "every_n_train_steps=500": "every_n_train_steps=5",
    'strategy="ddp"': 'strategy="ddp", accelerator="cpu", devices=2, logger=False',
    "Accelerator()": "Accelerator(cpu=True)",
    "save_steps=500": "save_steps=5, use_cpu=True, ddp_backend='gloo', disable_tqdm=True",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loops")
    small_dataset(path / "out")
    return path


def small(example: str) -> str:
    for text, replacement in SMALLER.items():
        example = example.replace(text, replacement)
    return example


@pytest.mark.processes
@pytest.mark.parametrize("number", range(5), ids=["ddp", "fsdp2", "lightning", "accelerate", "trainer"])
def test_killed_in_mid_epoch_both_ranks_go_on_with_the_faces_and_to_the_weights_of_an_undisturbed_run(
    folder: Path, number: int
) -> None:
    example = small(blocks("python", GUIDES / "loops.md")[number])
    undisturbed, killed = folder / f"{number}", folder / f"{number}, killed"
    run_loop(example, undisturbed)
    run_loop(example, killed, kill_at=KILLED_AT)
    names = names_by_checksum(folder / "out")
    assert len(names) == TRAIN_FACES
    expected = [steps_of(undisturbed, rank, 0, names) for rank in range(RANKS)]
    for epoch in (slice(STEPS), slice(STEPS, None)):
        assert sorted(chain(*chain(*(steps[epoch] for steps in expected)))) == sorted(names.values())
    for rank in range(RANKS):
        assert steps_of(killed, rank, 0, names) == expected[rank][: KILLED_AT - 1]
        assert steps_of(killed, rank, 1, names) == expected[rank][SAVED_AT:]
        weights, resumed = weights_of(undisturbed, rank), weights_of(killed, rank)
        assert all(torch.equal(weights[name], resumed[name]) for name in weights)
