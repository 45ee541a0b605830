"""The network in training, its optimizers, and the moving average of its weights."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ddot.core.records import Slots, to_device
from ddot.data.shards import fingerprint
from ddot.data.tokenizer import Tokenizer
from ddot.files import check_seal
from ddot.methods.losses import LOSSES
from ddot.methods.method import Trainable
from ddot.network.denoiser import Denoiser
from ddot.network.folder import check_weights, load_config, load_tensors, without_values
from ddot.network.places import read_json
from ddot.training.batches import Batches, Plan
from ddot.training.checkpoints import damaged
from ddot.training.config import Training
from ddot.training.distributed import distribute_state, exchanging, mean, parallelise, sharded_like, whole, whole_state
from ddot.training.optimisers import Average, make_optimisers


class Objective(nn.Module):
    """The network and its loss as one module, which is replicated or sharded."""

    def __init__(self, model: Denoiser):
        super().__init__()
        self.model = model

    def forward(self, method: Trainable, slots: Slots, position_factor: float) -> Float[Tensor, "losses"]:
        losses = method.loss(self.model, slots, position_factor)
        return torch.stack([getattr(losses, name) for name in LOSSES])


class Learner:
    """One process's part in training. All processes must call `weights`, `state` and `restore` together."""

    def __init__(self, model: Denoiser, settings: Training, device: torch.device, world: int):
        freeze_all_but(model, settings.only)
        self.settings, self.device = settings, device
        self.objective = Objective(model.to(device))
        self.parallel = parallelise(self.objective, model.trunk.blocks, world, settings.sharded)
        self.optimisers = make_optimisers(self.model, settings)
        self.average = Average(dict(self.model.named_parameters()), settings.average) if settings.average else None

    @property
    def model(self) -> Denoiser:
        return self.objective.model

    def gradients(self, method: Trainable, slots: Slots, position_factor: float) -> Float[Tensor, "losses"]:
        """Accumulate the gradients of a batch, part by part. Returns its losses."""
        parts = self.settings.accumulate
        losses = []
        for number, part in enumerate(interleaved(to_device(slots, self.device), parts), 1):
            with exchanging(self.parallel, last=number == parts):
                with self._autocast():
                    values = self.parallel(method, part, position_factor)
                (values[0] / parts).backward()
            losses.append(values.detach())
        return torch.stack(losses).mean(0)

    def update(self, step: int, rate_factor: float) -> Tensor:
        """Clip, step and average. Returns the norm of the gradient."""
        norm = nn.utils.clip_grad_norm_(self.objective.parameters(), self.settings.clip)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["full_rate"] * rate_factor
            optimiser.step()
            optimiser.zero_grad()
        if self.average:
            self.average.update(dict(self.model.named_parameters()), step)
        return norm

    @torch.no_grad()
    def batch_losses(self, plans: Sequence[Plan], batches: Batches, count: int) -> Float[Tensor, "batches losses"]:
        """Losses of each of the first `count` batches, the same ones at every call."""
        losses = []
        for step in range(count):
            index, slots = batches[step]
            with self._autocast():
                slots, factor = to_device(slots, self.device), self.settings.position_factor
                losses.append(self.objective(plans[index].method, slots, factor))
        return torch.stack(losses)

    def mean_losses(self, plans: Sequence[Plan], batches: Batches) -> dict[str, float]:
        """Losses averaged over the first batches, the same ones at every call, and over all processes."""
        losses = mean(self.batch_losses(plans, batches, self.settings.dev_batches).mean(0))
        return dict(zip(LOSSES, losses.tolist(), strict=True))

    def weights(self) -> dict[str, Tensor]:
        """The weights of the model as it would be saved now, whole and on the CPU."""
        weights = self.average.weights if self.average else dict(self.model.named_parameters())
        return {name: whole(weight) for name, weight in weights.items()}

    def state(self) -> dict[str, Tensor]:
        """What resuming needs besides the model: raw weights and optimizer state, on process 0."""
        return whole_state(self.objective, self.optimisers)

    def copy(self, weights: dict[str, Tensor]) -> Denoiser:
        """A network with these weights, not compiled and not distributed."""
        model = without_values(self.model.config)
        model.load_state_dict(weights, assign=True)
        return model.to(self.device).eval()

    def restore(self, folder: Path, tokenizer: Tokenizer, rank: int) -> tuple[int, float]:
        """Resume from a checkpoint. Returns its (step, seconds so far)."""
        with damaged(folder):
            meta = read_json(folder / "meta.json")
            same_tokens = fingerprint(Tokenizer.load(folder)) == fingerprint(tokenizer)
            if load_config(folder) != self.model.config or not same_tokens:
                raise ValueError("its network or vocabulary differs from the recipe's; resume with the same settings")
            state = load_tensors(folder / "state", "state") if rank == 0 else {}
            saved = load_tensors(folder, "model")
            check_weights(self.model, saved, folder)
            check_seal(folder)
            distribute_state(self.objective, self.optimisers, state)
            for name, weight in (self.average.weights if self.average else {}).items():
                weight.copy_(sharded_like(weight, saved[name]))
            return meta["step"], meta["seconds"]

    def _autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.settings.bf16 else nullcontext()


def freeze_all_but(model: Denoiser, only: Sequence[str]) -> None:
    """Train only weights whose names start with one of these prefixes; all if there are none."""
    weights = dict(model.named_parameters())
    for prefix in only:
        if not any(name.startswith(prefix) for name in weights):
            parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in weights))
            raise ValueError(f"training.only: the network has no weights '{prefix}…'; its parts are {parts}")
    for name, parameter in weights.items():
        parameter.requires_grad_(not only or name.startswith(tuple(only)))


def interleaved(slots: Slots, parts: int) -> Iterator[Slots]:
    """The parts of a batch, with interleaved rows."""
    for i in range(parts):
        yield Slots(**{field.name: getattr(slots, field.name)[i::parts] for field in dataclasses.fields(slots)})
