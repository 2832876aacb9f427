"""What a user notices of freezing: what is frozen stays bit for bit, is listed, and costs the optimizer nothing."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import torch
from assets_docs import GUIDES
from assets_levers import Foreign, fit, images, small, weights
from facefeed.train import levers
from facefeed.train.levers import FrozenRow, LeverError
from facefeed.train.model.face_classifier import FaceClassifier, ModelOptions


class Restless(Foreign):
    """Goes to training by itself, as some do after their own evaluation."""

    def on_train_epoch_start(self) -> None:
        self.train()
        assert self.net[3].training


def test_the_frozen_stay_bit_for_bit_through_training_and_validation() -> None:
    module = Restless(small())
    before = weights(module)
    fit(module, "freeze:net.0|net.1", images(16), val=images(8), max_epochs=3)
    after = weights(module)
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {name for name in before if name.startswith(("net.0.", "net.1."))}
    assert "net.1.running_mean" in same
    assert "net.1.num_batches_tracked" in same
    assert not module.net[1].training
    assert module.net[4].training


def test_a_batchnorm_whose_weights_alone_are_named_stays_in_eval_too() -> None:
    module = Foreign(small())
    before = weights(module)
    fit(module, "freeze:net.1.weight|net.1.bias")
    assert torch.equal(weights(module)["net.1.running_mean"], before["net.1.running_mean"])
    module = Foreign(small())
    fit(module, "freeze:net.1.weight")  # only a part of what it has
    assert not torch.equal(weights(module)["net.1.running_mean"], before["net.1.running_mean"])


def test_the_optimizer_gets_only_the_rest_and_no_gradient_is_made() -> None:
    module = Foreign(small())
    trainer = fit(module, "freeze:net.0*|net.1*|net.3*")
    parameter_ids = {id(parameter) for group in trainer.optimizers[0].param_groups for parameter in group["params"]}
    rest = {name for name, parameter in module.named_parameters() if id(parameter) in parameter_ids}
    assert rest == {"net.4.weight", "net.4.bias", "net.8.weight", "net.8.bias"}
    assert len(trainer.optimizers[0].state) == 4
    assert module.net[0].weight.grad is None


class Tied(torch.nn.Module):
    """Reads its words and names them by the same weight, which is listed under the name of the reading alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Linear(192, 192, bias=False)
        self.norm = torch.nn.BatchNorm1d(192)
        self.decoder = torch.nn.Linear(192, 192)
        self.decoder.weight = self.embed.weight
        self.again = self.norm
        self.head = torch.nn.Linear(192, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.decoder(self.again(self.norm(self.embed(inputs.flatten(1))))))


@pytest.mark.parametrize("pattern", ["net.embed", "net.decoder", "net.decoder.weight", "net.dec*.w*"])
def test_a_tied_weight_is_frozen_by_each_of_its_names(pattern: str) -> None:
    module = Foreign(Tied())
    before = weights(module)
    trainer = fit(module, f"freeze:{pattern}")
    assert torch.equal(weights(module)["net.decoder.weight"], before["net.decoder.weight"])
    assert torch.equal(weights(module)["net.decoder.bias"], before["net.decoder.bias"]) == (pattern == "net.decoder")
    assert not module.net.embed.weight.requires_grad
    trained = {id(parameter) for group in trainer.optimizers[0].param_groups for parameter in group["params"]}
    assert id(module.net.embed.weight) not in trained


def test_a_module_with_two_names_is_frozen_by_each_of_them() -> None:
    module = Foreign(Tied())
    before = weights(module)
    fit(module, "freeze:net.again")
    after = weights(module)
    assert all(torch.equal(after[name], before[name]) for name in before if name.startswith("net.norm."))


def test_the_table_counts_what_has_two_names_once() -> None:
    module = Foreign(Tied())
    (freeze,) = levers.parse("freeze:net.decoder|*.weight|net.*")
    assert freeze.table(module) == [
        FrozenRow("net.decoder", "net.decoder", 2, 192 * 192 + 192, 0),
        FrozenRow("*.weight", "net.embed.weight", 1, 192 * 192, 0),
        FrozenRow("*.weight", "net.norm.weight", 1, 192, 0),
        FrozenRow("*.weight", "net.head.weight", 1, 2 * 192, 0),
        FrozenRow("net.*", "net.embed", 1, 192 * 192, 0),
        FrozenRow("net.*", "net.norm", 2, 2 * 192, 1),
        FrozenRow("net.*", "net.decoder", 1, 192, 0),
        FrozenRow("net.*", "net.head", 2, 2 * 192 + 2, 0),
    ]


def test_all_weights_frozen_by_other_names_leave_nothing_to_train() -> None:
    (reason,) = levers.refusals(levers.parse("freeze:net.decoder|net.again|net.head"), Foreign(Tied()))
    assert "freezes all that there is to train" in reason


def groups(parameters: Any) -> torch.optim.Optimizer:
    first, *rest = list(parameters)
    return torch.optim.AdamW([{"params": [first], "lr": 0.5}, {"params": rest}], 0.1)


def scheduled(parameters: Any) -> Any:
    optimizer = groups(parameters)
    factors = [lambda step: 1.0, lambda step: 0.5**step]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factors)
    return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def test_a_group_that_is_left_empty_goes_unless_a_scheduler_counts_it() -> None:
    module = Foreign(small(), groups)
    assert len(fit(module, "freeze:net.0.weight").optimizers[0].param_groups) == 1
    module = Foreign(small(), scheduled)
    fit(module, "freeze:net.0.weight", images(12))
    assert module.rates == [[0.5, 0.1], [0.5, 0.05], [0.5, 0.025]]


def test_the_table_lists_what_each_pattern_takes() -> None:
    (freeze,) = levers.parse("freeze:net.0|net.[14]|*.8.bias")
    assert freeze.table(Foreign(small())) == [
        FrozenRow("net.0", "net.0", 2, 3 * 16 * 9 + 16, 0),
        FrozenRow("net.[14]", "net.1", 2, 32, 1),
        FrozenRow("net.[14]", "net.4", 2, 64, 1),
        FrozenRow("*.8.bias", "net.8.bias", 1, 2, 0),
    ]


@pytest.mark.parametrize(
    ("patterns", "batch_norms"),
    [("net.1.*", [1, 0]), ("net.1.weight|net.1.bias", [1, 0]), ("net.1.weight|net.1", [0, 1]), ("net.1.bias", [0])],
)
def test_the_table_counts_a_norm_that_is_frozen_by_all_its_parameters(patterns: str, batch_norms: list[int]) -> None:
    (freeze,) = levers.parse(f"freeze:{patterns}")
    module = freeze.apply(Foreign(small()))
    assert [row.batch_norms for row in freeze.table(module)] == batch_norms
    assert module.train().net[1].training is not any(batch_norms)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("8", r"'8' fits no module and no parameter; try net.8, or '\*.8' for all such"),
        ("net.1.weigth", "names here are such as net.1.weight"),
        ("layer1*", "names here are such as net, net.0"),
    ],
)
def test_a_pattern_that_fits_nothing_is_refused_with_near_names(pattern: str, message: str) -> None:
    (reason,) = levers.refusals(levers.parse(f"freeze:net.0|{pattern}"), Foreign(small()))
    with pytest.raises(LeverError, match=message):
        raise LeverError(reason)


def test_the_patterns_that_the_guide_shows_fit_a_classifier() -> None:
    (text,) = re.findall(r"'(freeze:[a-z][^']*)'", (GUIDES / "ladder.md").read_text(encoding="utf-8"))
    assert levers.refusals(levers.parse(text), FaceClassifier(ModelOptions(backbone="resnet18"))) == []


def of_the_head(module: Foreign) -> Any:
    return lambda _: torch.optim.SGD(module.net[8].parameters(), 0.1)


def test_what_leaves_the_optimizer_nothing_is_refused() -> None:
    module = Foreign(small())
    module.configure = of_the_head(module)
    with pytest.raises(LeverError, match="leaves nothing of what configure_optimizers gives its SGD"):
        fit(module, "freeze:net.8")


def test_a_frozen_module_can_be_copied_and_pickled_and_frozen_again() -> None:
    module = Foreign(small())
    (freeze,) = levers.parse("freeze:net.0|net.1")
    module = freeze.apply(freeze.apply(module))
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        other.train()
        assert not other.net[1].training
        assert module.net[1] is not other.net[1].train()
        assert other.net[1].train() is other.net[1]
        parameters = other.configure_optimizers().param_groups[0]["params"]
        assert {id(p) for p in parameters} == {id(p) for p in other.parameters() if p.requires_grad}
