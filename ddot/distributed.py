"""One process or many: starting, wrapping the network, and moving whole states in and out of it.

Under torchrun every process holds rows of the same global batch. `Replicated` (DDP) keeps a copy of the weights in
each; `Sharded` (FSDP2) a slice. Whole states are gathered to process 0 and handed out from there, so a run may go on
with another number of processes.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from torch.distributed.tensor import DTensor


@contextmanager
def processes(device: str) -> Iterator[tuple[int, int, torch.device]]:
    """(rank, world, device) of this process; joins the group torchrun made, if it did."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    where = torch.device(device)
    if world == 1:
        yield 0, 1, where
        return
    if where.type == "cuda":
        where = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(where)
    dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
    try:
        yield dist.get_rank(), world, where
    finally:
        dist.destroy_process_group()


def spread(objective: nn.Module, blocks: nn.ModuleList, world: int, sharded: bool) -> nn.Module:
    """The objective, ready for this number of processes: as it is, replicated, or sharded block by block."""
    if world == 1:
        return objective
    if not sharded:
        return nn.parallel.DistributedDataParallel(objective)
    from torch.distributed.fsdp import fully_shard

    for block in blocks:
        fully_shard(block)
    return fully_shard(objective)  # type: ignore[return-value]


def whole(tensor: Tensor) -> Tensor:
    """The full tensor on the CPU, gathered if it is sharded (every process must ask)."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def whole_state(model: nn.Module, optimisers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Weights and optimizer state as flat named tensors, on process 0 (empty on the others)."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights: Any = get_model_state_dict(model, options=options)
    flat: dict[str, Tensor] = {f"weights/{name}": value for name, value in weights.items()}
    state: Any = get_optimizer_state_dict(model, optimisers, options=options).get("state", {})
    for name, entries in state.items():
        flat |= {f"optimiser/{entry}/{name}": torch.as_tensor(value) for entry, value in entries.items()}
    return flat


def hand_out(model: nn.Module, optimisers: list[torch.optim.Optimizer], flat: Mapping[str, Tensor]) -> None:
    """The inverse of `whole_state`: process 0 has the tensors, all processes take their part."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=dist.is_initialized())
    weights: Any = {name.removeprefix("weights/"): value for name, value in flat.items() if name.startswith("weights/")}
    set_model_state_dict(model, weights, options=options)
    state: Any = get_optimizer_state_dict(model, optimisers, options=StateDictOptions(full_state_dict=True))
    if flat:
        state["state"] = {}
        for name, value in flat.items():
            kind, *rest = name.split("/", 2)
            if kind == "optimiser":
                state["state"].setdefault(rest[1], {})[rest[0]] = value
    set_optimizer_state_dict(model, optimisers, state, options=options)


def barrier() -> None:
    """Wait for all processes."""
    if dist.is_initialized():
        dist.barrier()


def agree(value: float) -> float:
    """Process 0's number, everywhere."""
    if not dist.is_initialized():
        return value
    shared = torch.tensor([value], dtype=torch.float64)
    if dist.get_backend() == "nccl":
        shared = shared.cuda()
    dist.broadcast(shared, 0)
    return float(shared)
