"""One process or many: process groups, wrapping the network, gathering and distributing its state.

Under torchrun, every process has rows of the same global batch. DDP keeps a copy of the weights in each process, FSDP2
(`training.sharded`) a shard. State is gathered on process 0 and distributed from there, so a run may resume with a
different number of processes.
"""

import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ddot.files import AnotherRun
from ddot.network.devices import device_of


@contextmanager
def processes(device: str, patience: timedelta | None = None) -> Iterator[tuple[int, int, torch.device]]:
    """(rank, world, device) of this process. Under torchrun, joins the process group unless it already has.

    `patience`: how long processes wait for each other; None: torch's default.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    where = device_of(device)
    if world == 1:
        yield 0, 1, where
        return
    if where.type == "cuda":
        where = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(where)
    joined = dist.is_initialized()
    if not joined:
        dist.init_process_group("nccl" if where.type == "cuda" else "gloo", timeout=patience)
    try:
        yield dist.get_rank(), world, where
    except BaseException as error:
        # The traceback must not keep a replicated network alive: freeing it after its process group hangs.
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        if not joined:
            dist.destroy_process_group()


def parallelise(objective: nn.Module, blocks: nn.ModuleList, world: int, sharded: bool) -> nn.Module:
    """The objective for this number of processes: unchanged, replicated, or sharded block by block."""
    if world == 1:
        return objective
    if not sharded:
        return nn.parallel.DistributedDataParallel(objective)
    for block in blocks:
        fully_shard(block)
    return fully_shard(objective)  # type: ignore[return-value]


@contextmanager
def exchanging(parallel: nn.Module, last: bool) -> Iterator[None]:
    """A context for one part of a batch: gradients are exchanged with the last part only."""
    if isinstance(parallel, nn.parallel.DistributedDataParallel) and not last:
        with parallel.no_sync():
            yield
        return
    if isinstance(parallel, FSDPModule):
        parallel.set_requires_gradient_sync(last)
    yield


def gathered(tensor: Tensor) -> Tensor:
    """The whole tensor, gathered if it is sharded (all processes must call this)."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def sharded_like(weight: Tensor, value: Tensor) -> Tensor:
    """A whole tensor, sharded as the weight is (all processes must call this)."""
    if isinstance(weight, DTensor):
        return distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements)
    return value


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor on the CPU (all processes must call this)."""
    return gathered(tensor).detach().cpu()


def whole_state(model: nn.Module, optimisers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Weights and optimizer state as flat named tensors, on process 0 (empty on the others)."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights: Any = get_model_state_dict(model, options=options)
    flat: dict[str, Tensor] = {f"weights/{name}": value for name, value in weights.items()}
    state: Any = get_optimizer_state_dict(model, optimisers, options=options).get("state", {})
    for name, entries in state.items():
        flat |= {f"optimiser/{entry}/{name}": torch.as_tensor(value) for entry, value in entries.items()}
    return flat


def distribute_state(model: nn.Module, optimisers: list[torch.optim.Optimizer], flat: Mapping[str, Tensor]) -> None:
    """The inverse of `whole_state`: process 0 holds the tensors, every process gets its part."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=dist.is_initialized())
    weights: Any = {name.removeprefix("weights/"): value for name, value in flat.items() if name.startswith("weights/")}
    set_model_state_dict(model, weights, options=options)
    state: Any = get_optimizer_state_dict(model, optimisers, options=StateDictOptions(full_state_dict=True))
    if flat:
        saved: dict[str, dict[str, Tensor]] = {}
        for name, value in flat.items():
            kind, *rest = name.split("/", 2)
            if kind == "optimiser":
                saved.setdefault(rest[1], {})[rest[0]] = value
        if {name: set(entries) for name, entries in saved.items()} != {n: set(e) for n, e in state["state"].items()}:
            raise AnotherRun(
                "its state belongs to other optimizers; keep training.matrix_rate and training.only as they were"
            )
        state["state"] = saved
    set_optimizer_state_dict(model, optimisers, state, options=options)


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def mean(tensor: Tensor) -> Tensor:
    """The mean over processes, on all of them."""
    if not dist.is_initialized():
        return tensor
    total = tensor.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def largest(*values: float) -> list[float]:
    """The maximum of each value over processes, on all of them."""
    if not dist.is_initialized():
        return list(values)
    shared = torch.tensor(values, dtype=torch.float64, device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return shared.tolist()
