"""What a user notices of levers as texts: what they are called, what is refused and why, what joins the Trainer."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import lightning
import pytest
import torch
from assets_levers import Foreign, adamw, cpu, small, with_levers
from facefeed.train import levers
from facefeed.train.levers import LEVERS, LeverError, parse
from facefeed.train.machine import Machine
from lightning.pytorch.callbacks import EMAWeightAveraging, StochasticWeightAveraging

EVERYTHING = frozenset({"bitsandbytes", "deepspeed", "torchao", "triton"})
TORCHAO = EVERYTHING - {"bitsandbytes"}
TURING = Machine(("RTX 2080 Ti",), (11 << 30,), (7, 5), 8, EVERYTHING, "/usr/bin/c++")
AMPERE = Machine(("A100", "A100"), (80 << 30, 80 << 30), (8, 0), 8, EVERYTHING, "/usr/bin/c++")
BARE = Machine(cores=2)

TEXTS = (
    "fp16", "bf16", "tf32", "compile", "ddp", "ddp:4", "ddp:4:2", "zero:1", "zero:2:offload", "zero:3", "fsdp",
    "fsdp:4:2", "zero:2:4:2", "zero:3:offload:4",
    "accumulate:4", "freeze:net.0*|net.1", "adamw8bit", "fused", "checkpointing", "clip:0.5", "channels_last",
    "sync_batchnorm", "best:val/auc", "early_stop:val/loss", "early_stop:val/loss:7", "deterministic",
    "deterministic:3",
)  # fmt: skip


def test_none_is_no_lever_and_the_message_says_how_to_have_none() -> None:
    with pytest.raises(LeverError, match="there is no lever 'none'; for no levers, leave the text empty"):
        levers.parse("none")


def test_every_lever_reads_what_it_writes() -> None:
    assert {text.split(":")[0] for text in TEXTS} == set(LEVERS)
    for text in TEXTS:
        (lever,) = parse(text)
        assert isinstance(lever, LEVERS[lever.name])
        assert parse(str(lever)) == (lever,)
        assert str(lever) == text
    together = ",".join(TEXTS)
    assert ",".join(map(str, parse(together))) == together
    assert parse("") == parse("  ") == ()
    assert parse(" bf16 , clip:1 ") == parse("bf16,clip:1.0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bf61", "there is no lever 'bf61'; try bf16"),
        ("bf16,,fused", "has an empty part"),
        ("accumulate", "must be accumulate:N"),
        ("accumulate:1", "batches must be a whole number of at least 2"),
        ("accumulate:two", "accumulate:two: batches must be a whole number"),
        ("accumulate:2:3", "must be accumulate:N"),
        ("clip:0", "norm must be a number above 0"),
        ("clip:nan", "norm must be a number above 0"),
        ("zero:4", "stage must be 1, 2 or 3"),
        ("zero:2:host", "with :offload after it or nothing; try zero:2"),
        ("ddp:0", "devices must be a whole number of at least 1"),
        ("freeze:a||b", "has a pattern without a name"),
        ("best:", "metric must be a name"),
        ("early_stop:val_loss:0", "patience must be a whole number"),
        ("deterministic:-1", "seed must be a whole number of at least 0"),
        ("fp16:32", "must be fp16"),
    ],
)
def test_a_text_that_cannot_be_meant_is_refused_with_its_form(text: str, message: str) -> None:
    with pytest.raises(LeverError, match=message.replace("|", r"\|")):
        parse(text)


@pytest.mark.parametrize(
    ("text", "machine", "message"),
    [
        ("fp16", BARE, "a CPU has no scaled fp16 .* take bf16"),
        ("bf16", TURING, "RTX 2080 Ti has compute capability 7.5, and bf16 needs 8.0 .* take fp16"),
        ("tf32", BARE, "there is none; leave it out"),
        ("tf32", TURING, "7.5, and TF32 needs 8.0"),
        ("compile", BARE, "no C\\+\\+ compiler"),
        ("ddp", BARE, "no GPU, and so one process; .* ddp:2"),
        ("ddp", TURING, "there is one GPU"),
        ("ddp:1", BARE, "nobody to share with"),
        ("ddp:4", AMPERE, "there are 2 GPUs; take ddp:2"),
        ("zero:2", BARE, "DeepSpeed is not installed"),
        ("zero:3:offload", TURING.without_gpus(), "there is no GPU"),
        ("fsdp", BARE, "there is no GPU"),
        ("adamw8bit", BARE, "needs torchao, which is not installed"),
        ("adamw8bit", replace(AMPERE, packages=TORCHAO, compiler=None), "no C\\+\\+ compiler, .* bitsandbytes"),
        ("adamw8bit", replace(AMPERE, packages=TORCHAO - {"triton"}), "no Triton, .* bitsandbytes"),
        ("adamw8bit", replace(AMPERE, packages=TORCHAO, compute_capability=(6, 1)), "6.1, .* needs 7.0; .* bitsandb"),
        ("freeze:net", AMPERE, "freezes all that there is to train"),
        ("freeze:layer1*", AMPERE, "fits no module and no parameter"),
        ("fp16,bf16", AMPERE, r"fp16 and bf16: .* one kind \(precision\)"),
        ("zero:1,fsdp", AMPERE, "one kind"),
        ("fused,adamw8bit", AMPERE, "one kind"),
        ("clip:1,clip:2", AMPERE, "one kind"),
        ("zero:2,adamw8bit", AMPERE, "embeddings cannot keep 32 bits"),
        ("adamw8bit,fsdp", AMPERE, "inside the blocks of numbers"),
        ("channels_last,fsdp", AMPERE, "splits weights that lie contiguous alone"),
        ("fsdp:4", AMPERE, "there are 2 GPUs; take fsdp:2"),
        ("compile,zero:3", AMPERE, "take zero:2"),
        ("channels_last,zero:2", AMPERE, "a layout is lost"),
        ("accumulate:4,zero:2:offload", AMPERE, "both divide the loss by the number of batches.*take fsdp"),
        ("checkpointing,zero:3,freeze:net.0*", AMPERE, "DeepSpeed frees frozen weights"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(text: str, machine: Machine, message: str) -> None:
    (reason,) = levers.refusals(parse(text), Foreign(small()), machine)
    with pytest.raises(LeverError, match=message):
        raise LeverError(reason)


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("fp16,accumulate:4,clip:1,checkpointing,channels_last", TURING),
        ("bf16,tf32,compile,fused,clip:1,ddp", AMPERE),
        ("ddp:2:4", AMPERE),
        ("clip:1,fp16,fused", AMPERE),
        ("zero:2:offload,fp16,clip:1,freeze:net.0*", AMPERE),
        ("zero:3,checkpointing", AMPERE),
        ("fsdp,bf16,checkpointing,accumulate:2,freeze:net.0*,clip:1,compile", AMPERE),
        ("fsdp:2", BARE),
        ("adamw8bit,bf16,compile", AMPERE),
        ("ddp:2,bf16", BARE),
    ],
)
def test_levers_that_can_work_together_are_not_refused(text: str, machine: Machine) -> None:
    assert levers.refusals(parse(text), Foreign(small()), machine) == []


class Manual(Foreign):
    def __init__(self) -> None:
        super().__init__(small())
        self.automatic_optimization = False


@pytest.mark.parametrize("text", ["accumulate:4", "clip:1"])
def test_where_a_module_optimizes_manually_what_the_trainer_would_do_is_refused(text: str) -> None:
    (reason,) = levers.refusals(parse(text), Manual(), AMPERE)
    assert "Manual optimizes manually" in reason
    assert levers.refusals(parse("adamw8bit,checkpointing,bf16,freeze:net.0*"), Manual(), AMPERE) == []


def test_all_reasons_are_reported_at_once_and_nothing_was_changed() -> None:
    module = Foreign(small())
    before = dict(vars(module))
    with pytest.raises(LeverError) as refused:
        with_levers(module, "fp16,fsdp,freeze:nothing,fused")
    reasons = refused.value.details["refusals"]
    assert len(reasons) == 3
    assert str(refused.value) == "\n".join(reasons)
    assert refused.value.exit_code == 2
    assert vars(module) == before


def test_what_a_lever_sets_cannot_be_set_beside_it() -> None:
    with pytest.raises(LeverError, match="precision='32-true': is what the lever bf16 sets"):
        with_levers(Foreign(small()), "bf16", precision="32-true")


@pytest.mark.parametrize("callback", [EMAWeightAveraging(), StochasticWeightAveraging(1e-3)], ids=["ema", "swa"])
@pytest.mark.parametrize("text", ["fsdp:2", "zero:1", "zero:3:offload"])
def test_averages_of_weights_are_refused_beside_strategies_that_shard_them(
    text: str, callback: lightning.Callback
) -> None:
    with pytest.raises(LeverError, match=rf"{type(callback).__name__} and {text}: .*; take ddp, or leave the callback"):
        levers.trainer(Foreign(small(), adamw), parse(text), machine=AMPERE, callbacks=[callback])
    _, trainer = with_levers(Foreign(small(), adamw), "ddp:2", callbacks=[callback])
    assert callback in trainer.callbacks


class Own(lightning.Callback):
    pass


def test_callbacks_of_the_user_and_of_levers_ride_together() -> None:
    own = Own()
    _, trainer = with_levers(Foreign(small()), "best:val_loss,accumulate:2", callbacks=own, enable_checkpointing=True)
    names = [type(callback).__name__ for callback in trainer.callbacks]
    assert own in trainer.callbacks
    assert {"ModelCheckpoint", "ShortGroupRescaling"} <= set(names)
    assert trainer.accumulate_grad_batches == 2


def test_a_run_on_the_cpu_is_judged_as_one_whatever_gpus_there_are() -> None:
    options: dict[str, Any] = cpu()
    with pytest.raises(LeverError, match="a CPU has no scaled fp16"):
        levers.trainer(Foreign(small(), adamw), parse("fp16"), machine=AMPERE, **options)


def test_the_texts_are_read_without_lightning() -> None:
    code = (
        "import sys; from facefeed.train import levers; assert 'bf16' in levers.LEVERS and len(levers.LEVERS) == 18; "
        "assert not {'lightning', 'torch', 'torchao'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_lever_says_what_it_gives_and_costs() -> None:
    for lever in LEVERS.values():
        text = " ".join((lever.__doc__ or "").split())
        assert "Gives:" in text, lever.name
        assert "Costs:" in text, lever.name


def test_there_are_no_other_names() -> None:
    assert all(getattr(levers, name) is not None for name in levers.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = levers.Nothing


def test_sync_batchnorm_is_for_several_ranks_on_gpus() -> None:
    module = Foreign(small())
    assert levers.refusals(parse("ddp,sync_batchnorm"), module, AMPERE) == []
    for text, machine, message in (
        ("sync_batchnorm", AMPERE, "no lever shares out the work"),
        ("ddp:2,sync_batchnorm", BARE, "on GPUs alone"),
    ):
        (reason,) = levers.refusals(parse(text), module, machine)
        assert message in reason
    (reason,) = levers.refusals(parse("ddp,sync_batchnorm"), Foreign(torch.nn.Linear(2, 2)), AMPERE)
    assert "has no BatchNorm" in reason


def test_sync_batchnorm_leaves_names_weights_and_activations_as_they_were() -> None:
    import timm  # noqa: PLC0415

    module = Foreign(timm.create_model("test_efficientnet", num_classes=2)).eval()  # whose BatchNorms hold activations
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before, names = module.net(images), list(module.state_dict())
    (lever,) = parse("sync_batchnorm")
    changed = lever.apply(module)
    assert sum(isinstance(layer, torch.nn.SyncBatchNorm) for layer in changed.modules()) > 5
    assert list(changed.state_dict()) == names
    assert torch.equal(changed.net(images), before)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("text", ["ddp:4", "ddp:4:2", "fsdp:3"])
def test_the_ranks_that_a_refusal_advises_are_not_refused_next(text: str, count: int) -> None:
    machine = Machine(("A100",) * count, (80 << 30,) * count, (8, 0), 8, EVERYTHING, "c++")
    (reason,) = levers.refusals(parse(text), Foreign(small()), machine)
    for advised in re.findall(r"take ((?:ddp|fsdp):[\d:]*\d)", reason):
        assert levers.refusals(parse(advised), Foreign(small()), machine) == [], advised
    assert "take " in reason or "leave it out" in reason
