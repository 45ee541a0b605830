"""The network: any trunk, plus DDOT's additions, which start at zero so that step 0 reproduces the trunk.

Additions: embeddings of hints (which slots are prompt, where text is missing), of known gap lengths, of the time, and
of the distance to the prompt tokens on either side; linear heads for the velocity and for gap lengths.
"""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ddot.core import gap_lengths
from ddot.core.absorbing import CleanToken, Parametrisation, ScoreEntropy
from ddot.core.chunks import in_chunks
from ddot.core.codes import HINTS
from ddot.core.noise import SCHEDULE
from ddot.core.records import Prediction, State, Vocabulary
from ddot.core.shapes import PerSlot, Scores
from ddot.network.dit import DiT, DiTConfig
from ddot.network.llama import Llama, LlamaConfig
from ddot.network.trunk import Reading, Trunk

_FAR = 16.0  # tokens; prompt tokens farther away are ignored
_WAVES = 8
_SMALLEST_T = 1e-3


@dataclass(frozen=True)
class DenoiserConfig:
    """Everything needed to rebuild the network. Stored as config.json."""

    trunk: DiTConfig | LlamaConfig
    vocabulary: Vocabulary
    score: ScoreEntropy | CleanToken
    # Rotary units per unit of position. None: L/2, so that clean neighbours are about 1 apart at any L. Paper: 512.
    position_scale: float | None = None
    # The head predicts the distance to the clean position in rotary units, and the velocity is that divided by t, so
    # that later steps correct early errors. Off: the head predicts the velocity itself (paper).
    predict_clean: bool = False
    time: bool = False  # a time embedding; for trunks that are not conditioned on σ themselves
    surroundings: bool = False  # distances to the prompt tokens on either side
    gap_lengths: bool = False  # an embedding of known ones, a head for unknown ones
    slots: int = 64  # L when lengths are unknown: the most common one in training
    # How `infill` uses this model. planner: lengths are predicted from DDOT's start at t = 1 ("grid"), or from the
    # prompt as text with placeholders ("text"). order: tokens are revealed "surest" first, or written causally after an
    # "outline" of the text (`methods.outline`). Older models have "left-to-right", which now means "surest".
    planner: str = "grid"
    order: str = "surest"

    def __post_init__(self) -> None:
        for name, known in (("planner", ("grid", "text")), ("order", ("surest", "left-to-right", "outline"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is '{getattr(self, name)}'; it must be {' or '.join(known)}")

    @classmethod
    def extended(cls, trunk: LlamaConfig, vocabulary: Vocabulary) -> "DenoiserConfig":
        """The configuration of our own models: a Llama trunk with every addition that helps."""
        additions = {"predict_clean": True, "time": True, "surroundings": True, "gap_lengths": True}
        return cls(trunk, vocabulary, CleanToken(elbo=False), **additions)  # type: ignore[arg-type]


class Denoiser(nn.Module):
    """State → Prediction."""

    def __init__(self, config: DenoiserConfig):
        super().__init__()
        self.config = config
        self.noise = SCHEDULE
        self.chunk: int | None = None  # slots whose logits are computed at once; None: all
        self.trunk: Trunk = Llama(config.trunk) if isinstance(config.trunk, LlamaConfig) else DiT(config.trunk)
        d = config.trunk.width
        self.kind = nn.Embedding(HINTS, d)  # of State.hint; named so in stored weights
        self.velocity = nn.Linear(d, 1)
        self.time = _MLP(2 * _WAVES, d) if config.time else None
        self.around = _MLP(4 * _WAVES, d) if config.surroundings else None
        # Embedding and head of gap lengths, named as in stored weights.
        self.room = nn.Embedding(gap_lengths.CLASSES, d) if config.gap_lengths else None
        self.room_head = nn.Linear(d, gap_lengths.CLASSES) if config.gap_lengths else None
        for last in (self.kind, self.velocity, self.time, self.around, self.room, self.room_head):
            for parameter in (last[-1] if isinstance(last, nn.Sequential) else last or nn.Identity()).parameters():
                nn.init.zeros_(parameter)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.config.vocabulary

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def half_precision(self) -> torch.autocast:
        """Autocast for sampling: bf16 on a GPU, full precision elsewhere."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def in_chunks(self, size: int | None) -> "Denoiser":
        """The same network with shared weights, computing logits for `size` slots at a time (see `core.chunks`)."""
        model = copy.copy(self)
        model.chunk = size
        return model

    @property
    def score(self) -> Parametrisation:
        return self.config.score

    def scale(self, L: int) -> float:
        """Rotary units per unit of position among L slots."""
        return L / 2 if self.config.position_scale is None else self.config.position_scale

    def read(
        self, state: State, reading: Reading | None = None, part: slice = slice(None)
    ) -> tuple[Float[Tensor, "B part d"], Float[Tensor, "B part"]]:
        """(hidden vectors, velocity) of every slot, or of those in `part` if the `reading` caches the others.

        By default every slot attends to every slot.
        """
        scale = self.scale(state.z.shape[1])
        units = state.z * scale
        h = self.trunk.embed(state.x[:, part]) + self.kind(state.hint[:, part])
        if self.time is not None:
            h = h + self.time(waves(state.t, 2 * torch.pi))[:, None]
        if self.around is not None:
            h = h + self.around(surroundings(units, state.is_prompt, part))
        if self.room is not None:
            gap_length = state.gap_length[:, part]
            h = h + self.room(gap_lengths.length_class(gap_length.clamp(min=0))) * (gap_length >= 0)[..., None]
        if torch.is_autocast_enabled(h.device.type):
            h = h.to(torch.get_autocast_dtype(h.device.type))
        h = self.trunk.hidden(h, units[:, part], self.noise.sigma(state.t), reading)
        # Not a matrix product, which autocast would round to bf16: errors of whole slots at L = 1024.
        velocity = (h.float() * self.velocity.weight[0].float()).sum(-1) + self.velocity.bias.float()
        if self.config.predict_clean:
            velocity = velocity / (scale * state.t.clamp(min=_SMALLEST_T)[:, None])
        return h, velocity

    def forward(self, state: State, at: Bool[Tensor, "B L"] | None = None) -> Prediction:
        """Velocity, and scores at the slots in `at` (default: those masked now)."""
        at = state.x == self.vocabulary.mask if at is None else at
        h, velocity = self.read(state)
        sigma = self.noise.sigma(state.t)[:, None].expand_as(at)[at]
        (log_score,) = in_chunks(self._log_score, self.chunk, h[at], sigma)
        return Prediction(at=at, log_score=log_score, velocity=velocity, chunk=self.chunk)

    def _log_score(self, hidden: Float[Tensor, "M d"], sigma: PerSlot) -> tuple[Scores]:
        return (self.score.log_score(self.logits(hidden), sigma, self.vocabulary.mask),)

    def logits(self, hidden: Float[Tensor, "M d"]) -> Scores:
        """The trunk's logits, −∞ at the unused rows of the vocabulary."""
        logits = self.trunk.logits(hidden)
        used = torch.arange(logits.shape[-1], device=logits.device) < self.vocabulary.size
        return torch.where(used, logits, -torch.inf)

    def gap_length_logits(self, state: State) -> Float[Tensor, "B L classes"]:
        """Logits of the length of the gap after each slot (meant for prompt slots)."""
        return self.length_logits(self.read(state)[0])

    def length_logits(self, hidden: Float[Tensor, "*M d"]) -> Float[Tensor, "*M classes"]:
        """Logits of the length head, from hidden vectors."""
        if self.room_head is None:
            raise ValueError("this network has no length head to plan lengths with; set gap_lengths=True in its config")
        return self.room_head(hidden).float()

    def token_loss(
        self,
        hidden: Float[Tensor, "M d"],
        x_0: Int[Tensor, "M"],
        sigma: PerSlot,
        dsigma: PerSlot,
    ) -> PerSlot:
        """Loss of the chosen slots, from their hidden vectors. Separate so that it is compiled as one function."""
        return self.score.loss(self.logits(hidden), x_0, sigma, dsigma, self.vocabulary.mask)


class _MLP(nn.Sequential):
    """A two-layer MLP. When sampling on a CPU, the result for a row does not depend on the number of rows.

    For few rows, the matrix library takes another code path, which rounds differently, and int8 layers amplify
    last-bit differences a hundred thousand times.
    """

    _FEWEST = 16

    def __init__(self, features: int, width: int):
        super().__init__(nn.Linear(features, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x: Float[Tensor, "*n features"]) -> Float[Tensor, "*n d"]:
        missing = self._FEWEST - x.shape[:-1].numel()
        if missing <= 0 or x.device.type != "cpu" or torch.is_grad_enabled():
            return super().forward(x)
        rows = torch.cat([x.flatten(0, -2), x.new_zeros(missing, x.shape[-1])])
        return super().forward(rows)[:-missing].unflatten(0, x.shape[:-1])


def waves(value: Float[Tensor, "*B"], top: float) -> Float[Tensor, "*B waves"]:
    """Sines and cosines of `value` at 8 angular frequencies: top, top/2, top/4, …"""
    frequencies = top * 0.5 ** torch.arange(_WAVES, dtype=torch.float32, device=value.device)
    angles = value.float()[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)


def surroundings(
    units: Float[Tensor, "B L"], is_prompt: Bool[Tensor, "B L"], part: slice = slice(None)
) -> Float[Tensor, "B part features"]:
    """Distance of each slot in `part` to the nearest prompt token on its left and right, as waves.

    Rotary attention resolves small differences in position poorly, and whether a slot lies before or after a prompt
    token decides the order of the text. Invariant to a common shift of all positions.
    """
    offset = units[:, None, :] - units[:, part, None]  # [b, i, j]: how far j lies right of i
    slot = torch.arange(units.shape[1], device=units.device)
    other = is_prompt[:, None, :] & (slot[part, None] != slot)
    left = torch.where(other & (offset <= 0), -offset, _FAR).amin(-1).clamp(max=_FAR)
    right = torch.where(other & (offset >= 0), offset, _FAR).amin(-1).clamp(max=_FAR)
    return torch.cat([waves(left, torch.pi), waves(right, torch.pi)], -1)


def halve_blocks(model: Denoiser) -> None:
    """Store the blocks' matrices in bf16: the same products as under autocast, without a conversion in every pass."""
    for block in model.trunk.blocks:
        for module in block.modules():
            if isinstance(module, nn.Linear):
                module.to(torch.bfloat16)


def compile_blocks(model: Denoiser) -> None:
    """Compile block by block: the blocks share compiled code, so it takes seconds instead of a minute."""
    torch._dynamo.config.cache_size_limit = 64
    for block in model.trunk.blocks:
        block.compile(dynamic=False)
    model.token_loss = torch.compile(model.token_loss, dynamic=True)  # type: ignore[method-assign]
