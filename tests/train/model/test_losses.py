"""What a user notices of losses, schedules and decay: values as the plain formulas give them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from facefeed.train.model.losses import classification_loss
from facefeed.train.model.schedule import decay_groups, decaying_parameters, learning_rate_factor
from torch import nn

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3], [-4.0, 5.0, 1.0], [1.0, 1.0, -9.0]])
LABELS = torch.tensor([0, 2, 0, 1])
TWO = LOGITS[:, :1]


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def by_hand(logits: torch.Tensor, targets: list[list[float]], gamma: float = 0.0) -> float:
    """Mean of - sum over classes of target (1 - p)^gamma log p."""
    losses = [
        -sum(share * (1 - p) ** gamma * math.log(p) for share, p in zip(shares, softmax(row), strict=True))
        for row, shares in zip(logits.tolist(), targets, strict=True)
    ]
    return sum(losses) / len(losses)


def one_hot(labels: torch.Tensor, classes: int, smoothing: float = 0.0) -> list[list[float]]:
    return [
        [(1 - smoothing) * (number == label) + smoothing / classes for number in range(classes)]
        for label in labels.tolist()
    ]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_and_focal_loss_are_as_their_papers_have_them(smoothing: float) -> None:
    targets = one_hot(LABELS, 3, smoothing)
    loss = classification_loss(LOGITS, LABELS, kind="ce", label_smoothing=smoothing)
    assert loss.item() == pytest.approx(by_hand(LOGITS, targets), rel=1e-5)
    torch.testing.assert_close(loss, nn.functional.cross_entropy(LOGITS, LABELS, label_smoothing=smoothing))
    for gamma in (0.0, 0.5, 2.0, 5.0):
        loss = classification_loss(LOGITS, LABELS, kind="focal", focal_gamma=gamma, label_smoothing=smoothing)
        assert loss.item() == pytest.approx(by_hand(LOGITS, targets, gamma), rel=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_binary_cross_entropy_is_that_of_one_logit(smoothing: float) -> None:
    labels = torch.tensor([1, 0, 0, 1])
    loss = classification_loss(TWO, labels, kind="bce", label_smoothing=smoothing)
    two_logits = torch.cat([torch.zeros_like(TWO), TWO], dim=1)
    assert loss.item() == pytest.approx(by_hand(two_logits, one_hot(labels, 2, smoothing)), rel=1e-5)


@pytest.mark.parametrize("kind", ["bce", "ce", "focal"])
def test_a_float_label_is_the_probability_of_the_second_class(kind: Any) -> None:
    logits = TWO if kind == "bce" else LOGITS[:, :2]
    two_logits = torch.cat([torch.zeros_like(TWO), TWO], dim=1) if kind == "bce" else logits
    shares = torch.tensor([0.25, 1.0, 0.0, 0.6])
    loss = classification_loss(logits, shares, kind=kind)
    targets = [[1 - share, share] for share in shares.tolist()]
    assert loss.item() == pytest.approx(by_hand(two_logits, targets, 2.0 if kind == "focal" else 0.0), rel=1e-4)
    whole = torch.tensor([0, 1, 1, 0])
    torch.testing.assert_close(
        classification_loss(logits, whole.float(), kind=kind), classification_loss(logits, whole, kind=kind)
    )


@pytest.mark.parametrize("kind", ["bce", "ce", "focal"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_faces_of_unknown_label_take_no_part_and_leave_no_gradient(kind: Any, dtype: torch.dtype) -> None:
    logits = (TWO if kind == "bce" else LOGITS[:, :2]).clone().requires_grad_()
    labels = torch.tensor([0, -1, 1, -1], dtype=dtype)
    loss = classification_loss(logits, labels, kind=kind, label_smoothing=0.1)
    known = classification_loss(logits[[0, 2]], labels[[0, 2]], kind=kind, label_smoothing=0.1)
    torch.testing.assert_close(loss, known)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[[1, 3]].abs().max() == 0 < logits.grad[[0, 2]].abs().min()


def test_without_any_known_label_the_loss_is_0_and_backward_still_works() -> None:
    logits = LOGITS.clone().requires_grad_()
    loss = classification_loss(logits, torch.full((4,), -1), kind="ce")
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert logits.grad.abs().max() == 0


@pytest.mark.parametrize("kind", ["bce", "ce", "focal"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_logits_far_out_give_finite_losses_and_gradients(kind: Any, gamma: float) -> None:
    logits = torch.tensor([[300.0, -300.0], [-300.0, 300.0]])[:, : 1 if kind == "bce" else 2].requires_grad_()
    for labels in (torch.tensor([0, 1]), torch.tensor([1, 0])):
        loss = classification_loss(logits, labels, kind=kind, focal_gamma=gamma)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert gradient.isfinite().all()


def test_half_precision_logits_lose_nothing_to_the_loss_itself() -> None:
    low = LOGITS.bfloat16()
    loss = classification_loss(low, LABELS, kind="ce")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, classification_loss(low.float(), LABELS, kind="ce"))


# ---- schedule


def rates(kind: Any, steps: int, warmup_steps: int = 0) -> list[float]:
    return [
        learning_rate_factor(step, warmup_steps=warmup_steps, total_steps=steps, kind=kind) for step in range(steps + 2)
    ]


def test_the_rate_rises_evenly_from_the_first_step_and_is_whole_when_warm_up_ends() -> None:
    assert rates("constant", 6, warmup_steps=3) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1])


def test_then_it_falls_to_0_behind_the_last_step_and_never_below() -> None:
    assert rates("linear", 4) == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0])
    assert rates("linear", 6, warmup_steps=2) == pytest.approx([1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25, 0, 0])
    cosine = [0.5 * (1 + math.cos(math.pi * step / 4)) for step in range(5)]
    assert rates("cosine", 4) == pytest.approx([*cosine, 0])
    assert min(rates("cosine", 5)[:5]) > 0


def test_a_warm_up_longer_than_the_run_only_rises() -> None:
    assert rates("cosine", 3, warmup_steps=9)[:3] == pytest.approx([0.1, 0.2, 0.3])


# ---- weight decay


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norms = nn.Sequential(nn.BatchNorm2d(4), nn.LayerNorm(4), nn.GroupNorm(2, 4))
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.position = nn.Parameter(torch.zeros(1, 4, 4))
        self.head = nn.Linear(4, 2)


def test_weights_decay_and_norms_biases_scalars_and_what_is_spared_do_not() -> None:
    net = _Net()
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    with_decay, others = decay_groups(net, 0.3, decaying_parameters(net, {"position"}))
    assert {names[id(parameter)] for parameter in with_decay["params"]} == {"conv.weight", "head.weight"}
    assert (with_decay["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert len(with_decay["params"]) + len(others["params"]) == len(names)


def test_what_is_frozen_is_in_no_group_and_an_empty_group_is_left_out() -> None:
    net = _Net()
    net.requires_grad_(False)
    assert decay_groups(net, 0.3, decaying_parameters(net)) == []
    net.head.bias.requires_grad_()
    (group,) = decay_groups(net, 0.3, decaying_parameters(net))
    assert group["params"] == [net.head.bias]
    assert group["weight_decay"] == 0.0
