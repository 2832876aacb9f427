"""What a user notices of an optimizer that becomes another: groups, rates and schedulers go on, its state is small."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_levers import Foreign, fit, images, perceptron, quietly, small, weights, with_levers
from facefeed.train.levers import LeverError, optimizer_state_bytes
from torch.optim import lr_scheduler

BOTH = ["fused", "adamw8bit"]


def needs(text: str) -> None:
    if text == "adamw8bit":
        pytest.importorskip("torchao", reason="torchao is not installed")


def adamw(parameters: Any) -> torch.optim.AdamW:
    first, *rest = list(parameters)
    return torch.optim.AdamW([{"params": [first], "lr": 2e-3, "weight_decay": 0.0}, {"params": rest}], 1e-3)


def alone(parameters: Any) -> Any:
    return adamw(parameters)


def listed(parameters: Any) -> Any:
    return [adamw(parameters)]


def beside_schedulers(parameters: Any) -> Any:
    optimizer = adamw(parameters)
    return [optimizer], [lr_scheduler.StepLR(optimizer, 1, 0.5)]


def named(parameters: Any) -> Any:
    optimizer = adamw(parameters)
    return {"optimizer": optimizer, "lr_scheduler": lr_scheduler.ExponentialLR(optimizer, 0.3)}


def by_step(parameters: Any) -> Any:
    optimizer = adamw(parameters)
    cycle = lr_scheduler.OneCycleLR(optimizer, [1e-3, 2e-3], total_steps=8)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": cycle, "interval": "step"}}


def warmed_up(parameters: Any) -> Any:
    optimizer = adamw(parameters)
    rising = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    falling = lr_scheduler.CosineAnnealingLR(optimizer, 5)
    both = lr_scheduler.SequentialLR(optimizer, [rising, falling], [3])
    return [{"optimizer": optimizer, "lr_scheduler": {"scheduler": both, "interval": "step"}}]


def on_a_plateau(parameters: Any) -> Any:
    optimizer = adamw(parameters)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=10)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "train_loss"}}


@pytest.mark.parametrize("text", BOTH)
@pytest.mark.parametrize(
    "configure",
    [alone, listed, beside_schedulers, named, by_step, warmed_up, on_a_plateau],
    ids=lambda function: function.__name__,
)
def test_whatever_a_module_configures_its_rates_and_groups_stay(text: str, configure: Any) -> None:
    """torch's warnings are errors here: of schedulers that lost their optimizer there is none."""
    needs(text)
    plain, changed = Foreign(perceptron(), configure), Foreign(perceptron(), configure)
    fit(plain, "", max_epochs=2)
    trainer = fit(changed, text, max_epochs=2)
    assert changed.rates == plain.rates
    first, second = trainer.optimizers[0].param_groups
    assert (first["weight_decay"], second["weight_decay"]) == (0.0, 0.01)
    assert [len(group["params"]) for group in (first, second)] == [1, 3]
    assert changed.losses == pytest.approx(plain.losses, rel=0.05)
    if text == "fused":
        assert all(group["fused"] for group in trainer.optimizers[0].param_groups)
    else:
        assert "8bit" in type(trainer.optimizers[0]).__name__


class Manual(Foreign):
    """Two optimizers, as a GAN has them, and one of them kept by the module."""

    def __init__(self) -> None:
        super().__init__(perceptron())
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        self.mine = torch.optim.AdamW(self.net[1].parameters(), 1e-3)
        return self.mine, torch.optim.Adam(self.net[3].parameters(), 1e-3, weight_decay=0.1)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = super().training_step(batch, number)
        first, second = self.optimizers()
        assert first.optimizer is self.mine
        self.manual_backward(loss)
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
        return loss


@pytest.mark.parametrize("text", BOTH)
def test_several_optimizers_and_who_holds_them_go_on(text: str) -> None:
    needs(text)
    plain, changed = Manual(), Manual()
    fit(plain, "", max_epochs=2)
    trainer = fit(changed, text, max_epochs=2)
    assert changed.losses == pytest.approx(plain.losses, rel=0.05)
    kinds = [type(optimizer).__name__ for optimizer in trainer.optimizers]
    assert kinds == (["AdamW", "Adam"] if text == "fused" else ["AdamW8bit", "Adam8bit"])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam])
def test_a_fused_step_is_the_same_step(kind: Any) -> None:
    def configure(parameters: Any) -> Any:
        return kind(parameters, lr=0.01, weight_decay=0.1)

    plain, fused = Foreign(perceptron().double(), configure), Foreign(perceptron().double(), configure)
    data = images(dtype=torch.float64)
    fit(plain, "", data)
    fit(fused, "fused", data)
    torch.testing.assert_close(weights(fused), weights(plain), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "configure", "message"),
    [
        ("fused", torch.optim.RMSprop, "fused: RMSprop has no fused form"),
        ("fused", lambda parameters: torch.optim.AdamW(parameters, differentiable=True), "AdamW cannot be fused"),
        ("adamw8bit", lambda parameters: torch.optim.SGD(parameters, 0.1), "adamw8bit: SGD has no 8-bit form here"),
        ("adamw8bit", lambda parameters: torch.optim.AdamW(parameters, amsgrad=True), "has no amsgrad=True"),
    ],
)
def test_an_optimizer_that_cannot_become_so_is_refused_before_the_first_step(
    text: str, configure: Any, message: str
) -> None:
    module = Foreign(perceptron(), configure)
    with pytest.raises(LeverError, match=message):
        fit(module, text)
    assert module.losses == []


def test_bitsandbytes_is_refused_an_adam_whose_decay_it_would_decouple(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from facefeed.train.levers.optimizers import eightbit  # noqa: PLC0415

    monkeypatch.setattr(eightbit, "_uses_bitsandbytes", lambda optimizer: True)  # as on a GPU
    module = Foreign(perceptron(), adamw)
    first, *rest = module.parameters()
    groups: list[Any] = [{"params": [first], "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.1}]
    with pytest.raises(LeverError, match=r"weight_decay=0\.1 of Adam is added .* take torch\.optim\.AdamW"):
        eightbit.ReplaceByEightBit(module)(torch.optim.Adam(groups))
    for optimizer in (torch.optim.AdamW(groups), torch.optim.Adam(groups, decoupled_weight_decay=True)):
        eightbit.ReplaceByEightBit(module)(optimizer)
        assert type(optimizer).__name__ == "AdamW8bit"
    undecayed = torch.optim.Adam(module.parameters())
    eightbit.ReplaceByEightBit(module)(undecayed)
    assert type(undecayed).__name__ == "Adam8bit"


class Words(Foreign):
    """Learns a vector for each of 64 words, and a layer of 8,192 weights."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)))
        self.words = torch.nn.Embedding(64, 128)

    def training_step(self, batch: Any, number: int) -> Any:
        words, labels = batch
        return super().training_step((self.words(words), labels), number)


def sentences() -> Any:
    words = torch.arange(64)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(words, words % 2), 16)


def test_8_bit_state_takes_a_quarter_and_that_of_embeddings_stays_whole() -> None:
    """Of 8,192 weights: 2 bytes each, a scale of 4 for every 256 of both averages, and two tables of 256 numbers."""
    needs("adamw8bit")
    full, eight_bit = Words(), Words()
    before = optimizer_state_bytes(fit(full, "", sentences(), max_epochs=5).optimizers[0])
    optimizer = fit(eight_bit, "adamw8bit", sentences(), max_epochs=5).optimizers[0]
    state = {name: optimizer.state[parameter] for name, parameter in eight_bit.named_parameters()}
    assert type(state["words.weight"]["exp_avg"]) is torch.Tensor
    assert type(state["net.0.weight"]["exp_avg"]) is not torch.Tensor
    layer = torch.optim.AdamW([eight_bit.net[0].weight])
    layer.state[eight_bit.net[0].weight] = state["net.0.weight"]
    blocks = 8192 // 256
    assert optimizer_state_bytes(layer) <= 2 * (8192 + 4 * blocks) + 2 * 4 * 256 + 8
    assert before - optimizer_state_bytes(optimizer) == 8 * 8192 + 4 - optimizer_state_bytes(layer)
    assert eight_bit.losses == pytest.approx(full.losses, abs=0.02)
    assert eight_bit.losses[-1] < 0.5 * eight_bit.losses[0]


def fading_images() -> Any:
    """Batches of noise whose pixels differ 10,000-fold in contrast, and so do the gradients of their weights."""
    generator = torch.Generator().manual_seed(1)
    contrast = torch.logspace(0, -4, 192).view(3, 8, 8)
    return [(contrast * torch.randn(4, 3, 8, 8, generator=generator), torch.tensor([0, 1, 0, 1])) for _ in range(15)]


def largest_update(module: Any, optimizer: torch.optim.Optimizer) -> float:
    """Returns the largest change of a weight in one step, in learning rates."""
    largest = 0.0
    for batch, labels in fading_images():
        before = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module.net(batch), labels).backward()
        optimizer.step()
        after = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
        largest = max(largest, float((after - before).abs().max()) / optimizer.param_groups[0]["lr"])
    return largest


def without_decay(parameters: Any) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, 1e-3, weight_decay=0.0)


def test_an_8_bit_step_moves_no_weight_by_many_learning_rates() -> None:
    needs("adamw8bit")
    full = Foreign(perceptron(), without_decay)
    module, _ = with_levers(Foreign(perceptron(), without_decay), "adamw8bit")
    assert largest_update(full, without_decay(full.parameters())) < 2
    assert largest_update(module, quietly(module.configure_optimizers)) < 4
    for name, weight in weights(full).items():
        assert (weights(module)[name] - weight).abs().mean() < 1e-3  # one learning rate, after 15 steps


def test_a_resume_from_8_bit_state_with_second_moments_of_0_moves_no_weight_by_many_learning_rates() -> None:
    needs("adamw8bit")
    module, _ = with_levers(Foreign(perceptron(), without_decay), "adamw8bit")
    optimizer = quietly(module.configure_optimizers)
    largest_update(module, optimizer)
    state = copy.deepcopy(optimizer.state_dict())
    second_moments = [entry["exp_avg_sq"] for entry in state["state"].values()]
    (second_moment,) = [moment for moment in second_moments if isinstance(moment, dict)]
    assert (second_moment["codes"] == 0).any()
    second_moment["qmap"][0] = 0  # as torchao has it
    resumed = quietly(module.configure_optimizers)
    resumed.load_state_dict(state)
    assert largest_update(module, resumed) < 4
    assert second_moment["qmap"][0] == 0  # the state that was loaded is the caller's


@pytest.mark.parametrize("text", BOTH)
def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(text: str, tmp_path: Path) -> None:
    needs(text)
    uninterrupted, first_half, resumed = (Foreign(perceptron(), warmed_up) for _ in range(3))
    data = images(8)
    fit(uninterrupted, text, data, max_epochs=4)
    trainer = fit(first_half, text, data, max_epochs=2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    fit(resumed, text, data, max_epochs=4, ckpt_path=tmp_path / "half.ckpt")
    assert resumed.losses == uninterrupted.losses[4:]
    assert resumed.rates == uninterrupted.rates[4:]
    for name, weight in weights(uninterrupted).items():
        assert torch.equal(weights(resumed)[name], weight)


@pytest.mark.parametrize("layouts", [("fused", "fused,channels_last"), ("fused,channels_last", "fused")])
def test_a_fused_step_goes_on_from_a_checkpoint_of_weights_in_another_layout(
    layouts: tuple[str, str], tmp_path: Path
) -> None:
    uninterrupted, first_half, resumed = (Foreign(small().double(), warmed_up) for _ in range(3))
    data = images(8, dtype=torch.float64)
    fit(uninterrupted, "", data, max_epochs=4)
    fit(first_half, layouts[0], data, max_epochs=2).save_checkpoint(tmp_path / "half.ckpt")
    fit(resumed, layouts[1], data, max_epochs=4, ckpt_path=tmp_path / "half.ckpt")
    assert resumed.losses == pytest.approx(uninterrupted.losses[4:], rel=1e-9)


@pytest.mark.parametrize("text", BOTH)
def test_a_module_can_be_copied_pickled_and_trained_again(text: str) -> None:
    needs(text)
    module, _ = with_levers(Foreign(perceptron(), alone), text)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        optimizer = other.configure_optimizers()
        parameter_ids = {id(parameter) for parameter in other.parameters()}
        assert {id(parameter) for group in optimizer.param_groups for parameter in group["params"]} == parameter_ids
    for _ in range(2):
        fit(module, text)
    assert quietly(module.configure_optimizers).state == {}


@pytest.mark.filterwarnings("ignore")
def test_bitsandbytes_leaves_channels_last_weights_in_their_layout_also_after_a_resume() -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from facefeed.train.levers.optimizers.bitsandbytes import AdamW8bit  # noqa: PLC0415 (it may not be there)

    def trained(layout: torch.memory_format, *, resumes: bool) -> torch.Tensor:
        torch.manual_seed(0)
        convolution = torch.nn.Conv2d(16, 64, 3).to(memory_format=layout)  # 9,216 weights: state is of 8 bits
        optimizer = AdamW8bit(convolution.parameters(), lr=1e-2)
        for step in range(4):
            if resumes and step == 2:
                state, optimizer = optimizer.state_dict(), AdamW8bit(convolution.parameters(), lr=1e-2)
                optimizer.load_state_dict(pickle.loads(pickle.dumps(state)))
            optimizer.zero_grad()
            convolution(torch.randn(2, 16, 8, 8).to(memory_format=layout)).square().mean().backward()
            optimizer.step()
        return convolution.weight.detach()

    expected = trained(torch.contiguous_format, resumes=False)
    for resumes in (False, True):
        weight = trained(torch.channels_last, resumes=resumes)
        assert weight.is_contiguous(memory_format=torch.channels_last)
        # Other weights share a block, and so its scale, of the 8-bit state.
        torch.testing.assert_close(weight, expected, rtol=0, atol=2e-3)
    assert torch.equal(weight, trained(torch.channels_last, resumes=False))


@pytest.mark.filterwarnings("ignore")
def test_bitsandbytes_goes_on_with_state_of_a_version_that_made_weights_contiguous() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from facefeed.train.levers.optimizers.bitsandbytes import AdamW8bit  # noqa: PLC0415

    def trained(optimizer_class: Any) -> torch.Tensor:
        torch.manual_seed(0)
        convolution = torch.nn.Conv2d(16, 64, 3).to(memory_format=torch.channels_last)
        optimizer = bitsandbytes.optim.AdamW8bit(convolution.parameters(), lr=1e-2)
        for step in range(4):
            if step == 2:
                convolution.to(memory_format=torch.channels_last)
                state, optimizer = optimizer.state_dict(), optimizer_class(convolution.parameters(), lr=1e-2)
                optimizer.load_state_dict(pickle.loads(pickle.dumps(state)))
            optimizer.zero_grad()
            convolution(torch.randn(2, 16, 8, 8)).square().mean().backward()
            optimizer.step()
        return convolution.weight.detach()

    assert torch.equal(trained(AdamW8bit), trained(bitsandbytes.optim.AdamW8bit))
