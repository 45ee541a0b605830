"""What a run is: the whole configuration, as frozen dataclasses. `recipes` has the ready ones."""

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ddot.denoiser import DenoiserConfig
from ddot.loader import Plan
from ddot.tokens import Vocabulary


@dataclass(frozen=True)
class Data:
    """Packed corpora under `folder`, drawn from in proportion to their weights.

    With `texts` (files or hub names) a run packs them itself, into its own folder, before it starts: with the
    tokenizer of the model it starts from, or with a byte-level BPE of `tokens` tokens learnt from them.
    """

    folder: str = ""
    sources: tuple[tuple[str, float], ...] = ()
    texts: tuple[str, ...] = ()
    tokens: int = 4096
    dev: str | None = None  # a packed corpus that is never trained on
    edges: bool = True  # a token at both ends that says whether the text begins and ends there
    workers: int = 0


@dataclass(frozen=True)
class Training:
    """How long and how. A run ends after `steps` or `seconds`, whichever comes first, its schedule finished."""

    steps: int | None = None
    seconds: float | None = None
    slots: int = 65_536  # B · L of the global batch
    accumulate: int = 1
    rate: float = 3e-4  # AdamW
    matrix_rate: float | None = None  # Muon for the blocks' matrices; None: AdamW for those too
    added_rate: float | None = None  # AdamW for what is not part of the trunk; None: as `rate`
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    warmup: int = 100
    decay: float = 0.2
    clip: float = 1.0
    average: float = 0.999  # of the moving average that is saved as the model; 0: none
    position_factor: float = 10.0  # λ
    position_warmup: int = 0  # steps over which λ rises from 0
    bf16: bool = False
    compile: bool = False
    sharded: bool = False  # FSDP2 instead of DDP, when there are several processes
    device: str = "cpu"
    seed: int = 0
    save_every: int = 1_000  # steps; 0: never, not even at the end
    log_every: int = 10
    dev_every: int = 0
    dev_batches: int = 4
    sample_every: int = 0
    shard_bytes: int | None = None
    tensorboard: bool = False


@dataclass(frozen=True)
class Run:
    """Everything a run is made of. `ddot train` finds it by name in `recipes`."""

    name: str
    network: Callable[[Vocabulary], DenoiserConfig]
    data: Data
    plans: tuple[Plan, ...]
    training: Training
    start: str | None = None  # a model folder whose trunk and heads the network starts with


C = TypeVar("C")


def override(config: C, settings: Sequence[str]) -> C:
    """The configuration with "a.b=value" settings applied, typed as the fields are."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set wants NAME=VALUE, got '{setting}'; for example training.steps=200")
        config = _set(config, path.strip().split("."), text.strip(), path)
    return config


def _set(config: Any, names: list[str], text: str, path: str) -> Any:
    kinds = typing.get_type_hints(type(config))
    fields = [field.name for field in dataclasses.fields(config)]
    if names[0] not in fields:
        raise ValueError(f"there is no setting '{path}'; {type(config).__name__} has {', '.join(fields)}")
    value = getattr(config, names[0])
    if len(names) > 1:
        if not dataclasses.is_dataclass(value):
            raise ValueError(f"'{path}' goes too deep: {names[0]} is a {type(value).__name__}")
        return dataclasses.replace(config, **{names[0]: _set(value, names[1:], text, path)})
    return dataclasses.replace(config, **{names[0]: _parse(text, kinds[names[0]], path)})


def _parse(text: str, kind: Any, path: str) -> Any:
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in options and text.lower() in ("none", ""):
        return None
    for option in options:
        if option is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if option in (int, float):
            try:
                return option(text)
            except ValueError:
                continue
        if option is str:
            return text
        if option == tuple[str, ...]:
            return tuple(part for part in text.split(",") if part)
        if option == tuple[tuple[str, float], ...]:
            pairs = [part.partition(":") for part in text.split(",") if part]
            return tuple((name, float(weight or 1)) for name, _, weight in pairs)
        if option == tuple[float, float]:
            first, _, second = text.partition(",")
            return float(first), float(second)
    wanted = " or ".join(getattr(option, "__name__", str(option)) for option in options)
    raise ValueError(f"{path} wants {wanted}, got '{text}'")
