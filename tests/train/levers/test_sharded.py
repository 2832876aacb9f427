"""What a user notices of levers that need GPUs: their real strategies are made as asked, and run where there is one."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_levers import Foreign, cpu, images, perceptron, small
from facefeed.pipeline.errors import UsageError
from facefeed.train import levers
from lightning.pytorch.trainer.states import TrainerFn


@pytest.fixture
def deepspeed() -> Any:
    """Imported without its advice on this machine."""
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")


def strategy(text: str) -> Any:
    (lever,) = levers.parse(text)
    return lever.arguments()["strategy"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("text", "stage", "offloads"),
    [
        ("zero:1", 1, set()),
        ("zero:2", 2, set()),
        ("zero:3", 3, set()),
        ("zero:1:offload", 1, {"offload_optimizer"}),
        ("zero:2:offload", 2, {"offload_optimizer"}),
        ("zero:3:offload", 3, {"offload_optimizer", "offload_param"}),
    ],
)
def test_deepspeed_reads_what_each_stage_says(text: str, stage: int, offloads: set[str], deepspeed: Any) -> None:
    """By DeepSpeed's own reading of the strategy's configuration, with what the Trainer would add to it."""
    from deepspeed.runtime.config import DeepSpeedConfig  # noqa: PLC0415 (it may not be there)

    zero_strategy = strategy(text)
    assert zero_strategy.strategy_name == "deepspeed"
    assert zero_strategy.config["train_micro_batch_size_per_gpu"] == 1  # not asked of a loader's batch sampler
    parsed = DeepSpeedConfig({**zero_strategy.config, "gradient_accumulation_steps": 2})
    zero = parsed.zero_config
    assert int(zero.stage) == parsed.zero_optimization_stage == stage
    offloaded = {name for name in ("offload_optimizer", "offload_param") if getattr(zero, name) is not None}
    assert offloaded == offloads
    assert zero_strategy.offloads == bool(offloads)
    assert {str(getattr(zero, name).device) for name in offloaded} <= {"OffloadDeviceEnum.cpu", "cpu"}
    assert parsed.zero_allow_untested_optimizer
    assert not parsed.zero_force_ds_cpu_optimizer  # the module's own optimizer steps on the host


@pytest.mark.parametrize("text", ["ddp", "fsdp", "zero:2", "zero:3:offload"])
@pytest.mark.filterwarnings("ignore")
def test_every_strategy_takes_devices_and_nodes(text: str, deepspeed: Any) -> None:
    arguments = levers.parse(f"{text}:2:3")[0].arguments()
    assert (arguments["devices"], arguments["num_nodes"]) == (2, 3)
    assert levers.parse(text)[0].arguments()["devices"] == "auto"


@pytest.mark.filterwarnings("ignore")
def test_without_a_gpu_the_refusal_is_ours_since_lightnings_would_be_a_trace(deepspeed: Any) -> None:
    from lightning import Trainer  # noqa: PLC0415

    with pytest.raises(RuntimeError):
        Trainer(**cpu(strategy=strategy("zero:2"))).fit(Foreign(perceptron()), images(4))
    with pytest.raises(levers.LeverError, match="there is no GPU; take fsdp:2 on CPUs"):
        levers.trainer(Foreign(perceptron()), levers.parse("zero:2"), **cpu())


# ---- checkpoints of ZeRO


class _Writes:
    """Makes a folder when it is unpickled by somebody who trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


class _Engine(torch.nn.Module):
    """DeepSpeed's engine as far as Lightning's strategy asks it for a checkpoint; DeepSpeed's own reading of files."""

    optimizer = None

    def load_checkpoint(self, folder: str | Path, **_: Any) -> tuple[str, dict[str, Any]]:
        from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import (  # noqa: PLC0415
            TorchCheckpointEngine,
        )

        files = sorted(Path(folder, "checkpoint").iterdir())
        contents = [TorchCheckpointEngine().load(str(file)) for file in files]
        contents.append(torch.load(files[-1], weights_only=False))  # as its zero_to_fp32 does, for a test at stage 3
        return str(folder), contents[-1]


def _resumed(folder: Path) -> dict[str, Any]:
    zero_strategy = strategy("zero:2")
    module = Foreign(perceptron())
    module.trainer = types.SimpleNamespace(state=types.SimpleNamespace(fn=TrainerFn.FITTING))
    zero_strategy.connect(module)
    zero_strategy.model = _Engine()
    loaded: dict[str, Any] = zero_strategy.load_checkpoint(folder)
    return loaded


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"])
def test_a_malicious_file_among_those_of_zero_is_refused_and_runs_nothing(
    name: str, deepspeed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "last.ckpt" / "checkpoint"
    folder.mkdir(parents=True)
    (tmp_path / "last.ckpt" / "latest").write_text("checkpoint")
    torch.save({"module": {}}, folder / "mp_rank_00_model_states.pt")
    torch.save({"module": {}, "stage": _Writes(tmp_path / "written")}, folder / name)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(UsageError, match=r"last\.ckpt: asks for \w+\.mkdir to be run, .*refused"):
        _resumed(tmp_path / "last.ckpt")
    assert not (tmp_path / "written").exists()
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


@pytest.mark.filterwarnings("ignore")
def test_values_of_deepspeeds_own_in_a_checkpoint_of_zero_are_read(deepspeed: Any, tmp_path: Path) -> None:
    """The classes that DeepSpeed 0.19 saves at stages 1 to 3, with fp16's scaler."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler  # noqa: PLC0415
    from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: PLC0415
    from deepspeed.utils.tensor_fragment import fragment_address  # noqa: PLC0415

    folder = tmp_path / "last.ckpt" / "checkpoint"
    folder.mkdir(parents=True)
    scaler = DynamicLossScaler(2.0**16, 2.0, 1000, 1.0, 2, False, dtype=torch.half)
    state = {
        "loss_scaler": scaler, "other": LossScaler(1.0), "zero_stage": ZeroStageEnum.gradients,
        "param_slice_mappings": [{"weight": fragment_address(numel=6, start=2)}], "moments": torch.arange(6.0),
    }  # fmt: skip
    torch.save({"optimizer_state_dict": state}, folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    loaded = _resumed(tmp_path / "last.ckpt")["optimizer_state_dict"]
    assert loaded["loss_scaler"].cur_scale == 2.0**16
    assert loaded["zero_stage"] is ZeroStageEnum.gradients
    assert loaded["param_slice_mappings"] == [{"weight": fragment_address(numel=6, start=2)}]
    assert torch.equal(loaded["moments"], torch.arange(6.0))


class _ByGetattr:
    """Pickled as an attribute of something, as Python before 3.11.4 pickles a member of an enumeration."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return getattr, (self.owner, self.name)


@pytest.mark.filterwarnings("ignore")
def test_a_stage_that_an_early_python_saved_is_read_and_no_other_attribute(deepspeed: Any, tmp_path: Path) -> None:
    from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: PLC0415
    from deepspeed.utils.tensor_fragment import fragment_address  # noqa: PLC0415

    folder = tmp_path / "last.ckpt" / "checkpoint"
    folder.mkdir(parents=True)
    file = folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    torch.save({"optimizer_state_dict": {"zero_stage": _ByGetattr(ZeroStageEnum, "gradients")}}, file)
    assert _resumed(tmp_path / "last.ckpt")["optimizer_state_dict"]["zero_stage"] is ZeroStageEnum.gradients
    for owner, name in ((fragment_address, "__init__"), (ZeroStageEnum, "__class__")):
        torch.save({"optimizer_state_dict": {"zero_stage": _ByGetattr(owner, name)}}, file)
        with pytest.raises(UsageError, match="asks for getattr to be run, which a checkpoint may not, and is refused"):
            _resumed(tmp_path / "last.ckpt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("state", "device"), [(TrainerFn.TESTING, "meta"), (TrainerFn.FITTING, "cpu")])
def test_a_module_that_a_fit_left_on_the_host_is_tested_on_the_device(
    state: TrainerFn, device: str, deepspeed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightning.pytorch.strategies import DeepSpeedStrategy  # noqa: PLC0415

    zero_strategy, module = strategy("zero:3"), Foreign(perceptron())
    zero_strategy.connect(module)
    monkeypatch.setattr(DeepSpeedStrategy, "root_device", torch.device("meta"))
    monkeypatch.setattr(DeepSpeedStrategy, "setup", lambda *_: None)
    zero_strategy.setup(types.SimpleNamespace(state=types.SimpleNamespace(fn=state)))
    assert module.device.type == device


# ---- BatchNorm under 16 bits, as DeepSpeed casts a module


def cast_as_deepspeed_does(module: torch.nn.Module) -> None:
    """Weights in 16 bits, running statistics as they were."""
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)


def test_batchnorm_learns_in_fp32_though_deepspeed_casts_its_weights_alone(deepspeed: Any) -> None:
    from facefeed.train.levers.ranks.zero_strategy import normalise_in_fp32  # noqa: PLC0415 (DeepSpeed)

    torch.manual_seed(0)
    net, expected = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4)
    inputs = torch.randn(8, 4, 5, 5).to(torch.bfloat16) * 3 + 2
    normalise_in_fp32(net)
    cast_as_deepspeed_does(net)
    outputs = net(inputs.requires_grad_())
    outputs.float().square().sum().backward()
    reference = expected(inputs.detach().float())
    assert outputs.dtype == torch.bfloat16
    assert torch.equal(outputs, reference.to(torch.bfloat16))
    assert (net.running_mean.dtype, net.running_var.dtype) == (torch.float32, torch.float32)
    assert torch.equal(net.running_mean, expected.running_mean)
    assert torch.equal(net.running_var, expected.running_var)
    assert int(net.num_batches_tracked) == 1
    assert net.weight.grad.dtype == torch.bfloat16
    net.eval()
    expected.eval()
    assert torch.equal(net(inputs), expected(inputs.detach().float()).to(torch.bfloat16))
    assert int(net.num_batches_tracked) == 1


def test_a_copy_of_a_trained_module_normalises_by_its_own_weights_and_statistics(deepspeed: Any) -> None:
    from facefeed.train.levers.ranks.zero_strategy import normalise_in_fp32  # noqa: PLC0415 (DeepSpeed)

    net = torch.nn.Sequential(torch.nn.BatchNorm2d(3))
    normalise_in_fp32(net)
    cast_as_deepspeed_does(net)
    inputs = torch.randn(4, 3, 5, 5, dtype=torch.bfloat16)
    outputs = net(inputs)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        with torch.no_grad():
            copied[0].weight.fill_(5)
        assert torch.allclose(copied(inputs).float(), 5 * outputs.float(), rtol=0.02, atol=0.02)
        assert (int(copied[0].num_batches_tracked), int(net[0].num_batches_tracked)) == (2, 1)


def test_batchnorm_that_runs_twice_for_checkpointing_still_counts_a_batch_once(deepspeed: Any) -> None:
    from facefeed.train.levers.ranks.zero_strategy import normalise_in_fp32  # noqa: PLC0415 (DeepSpeed)

    images, statistics = torch.randn(4, 3, 8, 8, dtype=torch.bfloat16), []
    for texts in ("", "checkpointing"):
        module = Foreign(torch.nn.Sequential(small(), torch.nn.Sequential(torch.nn.Linear(2, 2))), torch.optim.AdamW)
        for lever in levers.parse(texts):
            lever.apply(module)
        normalise_in_fp32(module)
        cast_as_deepspeed_does(module)
        module.net(images).float().sum().backward()
        norms = [layer for layer in module.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
        statistics.append([(norm.running_mean, norm.running_var, norm.num_batches_tracked) for norm in norms])
    plain, twice = statistics
    assert len(plain) == len(twice) == 2
    for expected, found in zip(plain, twice, strict=True):
        assert all(map(torch.equal, expected, found))


@pytest.mark.filterwarnings("ignore")
def test_swin_computes_in_16_bits_though_deepspeed_casts_its_weights_alone(deepspeed: Any) -> None:
    import timm  # noqa: PLC0415 (takes seconds)
    from facefeed.train.levers.ranks.zero_strategy import cast_constants_of_timm  # noqa: PLC0415 (DeepSpeed)

    sizes = {"img_size": 32, "window_size": 2, "embed_dim": 8, "depths": (2,), "num_heads": (1,), "num_classes": 2}
    net = timm.models.SwinTransformerV2(**sizes)
    rotary, saved = torch.nn.Module(), {name: value.dtype for name, value in net.state_dict().items()}
    rotary.register_buffer("frequencies", torch.ones(2), persistent=False)
    module = torch.nn.Sequential(net, rotary)
    cast_constants_of_timm(module)
    assert {name: value.dtype for name, value in net.state_dict().items()} == saved  # weights of 32 bits need none
    assert {buffer.dtype for buffer in net.buffers()} == {torch.float32, torch.int64}
    cast_as_deepspeed_does(module)
    cast_constants_of_timm(module)
    outputs = net(torch.randn(2, 3, 32, 32, dtype=torch.bfloat16))
    outputs.float().square().sum().backward()
    assert outputs.dtype == torch.bfloat16
    assert rotary.frequencies.dtype == torch.float32  # of another library, which counts on it


# ---- whole, where there is a GPU

ON_A_GPU = (
    "fp16,clip:1,accumulate:2", "bf16,channels_last,fused", "tf32", "adamw8bit", "compile,bf16", "checkpointing,fp16",
    "zero:1,fp16", "zero:2,bf16,clip:1", "zero:3", "zero:2:offload,fp16", "zero:3:offload", "fsdp,bf16",
    "fsdp,fp16,clip:1,checkpointing,freeze:net.0*", "deterministic",
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", ON_A_GPU)
def test_it_trains_on_a_gpu(text: str, tmp_path: Path) -> None:
    module = Foreign(small(), lambda parameters: torch.optim.AdamW(parameters, 1e-2))
    parsed = levers.parse(text)
    reasons = levers.refusals(parsed, module)
    if reasons:
        pytest.skip("; ".join(reasons))
    guard = levers.FiniteGuard()
    options = cpu(accelerator="gpu", max_epochs=20, callbacks=[guard], default_root_dir=tmp_path)
    options = options if {"zero", "fsdp"} & {lever.name for lever in parsed} else {"devices": 1, **options}
    module, trainer = levers.trainer(module, parsed, **options)
    trainer.fit(module, images(32, 8))
    assert module.losses[-1] < 0.8 * module.losses[0]
    assert guard.metrics()["nonfinite_steps"] == 0
    memory = levers.peak_memory()
    assert 0 < (memory["allocated_bytes"] or 0) <= (memory["reserved_bytes"] or 0)
