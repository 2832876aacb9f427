"""What a user notices of gradient checkpointing: the same gradients, and far fewer bytes kept for them."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from assets_levers import Foreign, fit, images, perceptron, quietly, small, weights
from facefeed.train import levers
from torch.autograd.graph import saved_tensors_hooks

(CHECKPOINTING,) = levers.parse("checkpointing")


def saved_bytes(net: torch.nn.Module, inputs: Any) -> int:
    """What autograd keeps of a forward pass beside the parameters: counted, since memory in use is not."""
    parameter_storages = {tensor.untyped_storage().data_ptr() for tensor in (*net.parameters(), *net.buffers())}
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameter_storages:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = net(inputs)
    del outputs
    return sum(saved.values())


def backward(net: torch.nn.Module, inputs: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)  # dropout
    outputs = net(inputs)
    getattr(outputs, "logits", outputs).square().sum().backward()
    gradients = {f"gradient of {name}": p.grad for name, p in net.named_parameters() if p.grad is not None}
    return {**gradients, **dict(net.named_buffers())}


def residual() -> torch.nn.Module:
    """Blocks in a list, which the module goes through by itself, with dropout."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            wide, narrow = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
            block = torch.nn.Sequential(wide, torch.nn.GELU(), torch.nn.Dropout(0.5), narrow)
            self.blocks = torch.nn.ModuleList(copy.deepcopy(block) for _ in range(6))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                inputs = inputs + block(inputs)
            return inputs

    torch.manual_seed(0)
    return Net()


def convolutions() -> torch.nn.Module:
    """Small layers one after another, with BatchNorm."""
    torch.manual_seed(0)
    layers = [(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()) for _ in range(6)]
    return torch.nn.Sequential(*(layer for block in layers for layer in block))


def of_timm(name: str) -> torch.nn.Module:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    torch.manual_seed(0)
    net: torch.nn.Module = timm.create_model(name, pretrained=False, num_classes=2)
    return net


def bert() -> torch.nn.Module:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 4}
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        net: torch.nn.Module = transformers.BertForSequenceClassification(
            transformers.BertConfig(vocab_size=50, **sizes)
        )
    return net


NETS = {
    "blocks in a list": (residual, lambda: torch.randn(4, 32), 0.5),
    "layers in a sequence": (convolutions, lambda: torch.randn(2, 8, 8, 8), 0.5),
    "timm's ResNet": (lambda: of_timm("test_resnet"), lambda: torch.randn(2, 3, 64, 64), 0.8),
    "timm's ViT": (lambda: of_timm("test_vit"), lambda: torch.randn(2, 3, 160, 160), 0.6),
    "a BERT of Hugging Face": (bert, lambda: torch.arange(32).reshape(2, 16), 0.6),
}


@pytest.mark.parametrize("name", NETS)
def test_gradients_and_running_statistics_are_the_same_and_less_is_kept(name: str) -> None:
    make, draw, share = NETS[name]
    torch.manual_seed(3)
    inputs = draw()
    plain, checkpointed = make().train(), make().train()
    names = list(checkpointed.state_dict())
    CHECKPOINTING.apply(Foreign(checkpointed))
    sizes = {id(net): quietly(saved_bytes, copy.deepcopy(net), inputs) for net in (plain, checkpointed)}
    assert sizes[id(checkpointed)] < share * sizes[id(plain)]
    expected, actual = quietly(backward, plain, inputs), quietly(backward, checkpointed, inputs)
    assert expected.keys() == actual.keys()
    for key, value in expected.items():
        assert torch.equal(actual[key], value), key
    assert list(checkpointed.state_dict()) == names


def test_a_fit_is_the_same_step_for_step() -> None:
    plain, checkpointed = Foreign(small()), Foreign(small())
    fit(plain, "", val=images(8), max_epochs=2)
    fit(checkpointed, "checkpointing", val=images(8), max_epochs=2)
    assert checkpointed.losses == plain.losses
    for name, value in weights(plain).items():
        assert torch.equal(weights(checkpointed)[name], value), name


def test_frozen_first_layers_and_bf16_go_with_it() -> None:
    plain, checkpointed = Foreign(small()), Foreign(small())
    fit(plain, "bf16,freeze:net.0|net.1")
    fit(checkpointed, "bf16,freeze:net.0|net.1,checkpointing")
    assert checkpointed.losses == plain.losses


def test_applied_again_it_is_as_before_and_it_can_be_copied_and_pickled() -> None:
    once, twice = residual(), residual()
    CHECKPOINTING.apply(Foreign(once))
    CHECKPOINTING.apply(CHECKPOINTING.apply(Foreign(twice)))
    inputs = torch.randn(4, 32)
    assert saved_bytes(once, inputs) == saved_bytes(twice, inputs)
    copied = copy.deepcopy(twice)
    torch.nn.init.zeros_(copied.blocks[0][0].weight)
    assert not torch.equal(copied.eval()(inputs), twice.eval()(inputs))
    sequence = perceptron()
    CHECKPOINTING.apply(Foreign(sequence))
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(pickle.loads(pickle.dumps(sequence))(images), sequence(images))


def test_without_gradients_nothing_is_computed_twice() -> None:
    net = convolutions()
    CHECKPOINTING.apply(Foreign(net))
    calls: list[int] = []
    net[0].register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        net(torch.randn(2, 8, 8, 8))
    assert len(calls) == 1
    net(torch.randn(2, 8, 8, 8)).sum().backward()
    assert len(calls) == 3


class Bare(Foreign):
    pass


def test_a_module_without_blocks_is_refused() -> None:
    (reason,) = levers.refusals([CHECKPOINTING], Bare(torch.nn.Linear(192, 2)))
    assert reason.startswith("checkpointing: Bare has no blocks to compute again")
    assert levers.refusals([CHECKPOINTING], Bare(perceptron())) == []


def test_a_network_of_timm_that_refuses_goes_by_its_blocks() -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = timm.create_model("dla34", pretrained=False, num_classes=2)
    inputs = torch.randn(2, 3, 32, 32)
    before = saved_bytes(net, inputs)
    CHECKPOINTING.apply(Foreign(net))
    assert saved_bytes(net, inputs) < before
