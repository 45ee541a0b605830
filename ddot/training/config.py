"""The configuration of a run as frozen dataclasses, and `--set` overrides. `recipes` has ready-made runs."""

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ddot.core.records import Vocabulary
from ddot.network.denoiser import DenoiserConfig
from ddot.training.batches import Plan


@dataclass(frozen=True)
class Data:
    """Packed corpora under `folder`, sampled in proportion to their weights.

    A run with `texts` (files or hub names) first packs them into its own folder, with the tokenizer of the model it
    starts from, or with a byte-level BPE of `tokens` tokens learnt from them. `dev` is then also such a text.
    """

    folder: str = ""
    sources: tuple[tuple[str, float], ...] = ()
    texts: tuple[str, ...] = ()
    tokens: int = 4096
    dev: str | None = None  # a packed corpus that is not trained on
    edges: bool = True  # a token at both ends: whether the text begins and ends there
    workers: int = 0


# Valid ranges of the fields of `Training`.
_RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("at least 1", lambda n: n >= 1, "steps slots accumulate keep log_every dev_batches shard_bytes"),
    ("more than 0", lambda x: x > 0, "seconds clip"),
    ("0 or more", lambda x: x >= 0, "rate matrix_rate added_rate weight_decay warmup position_factor position_warmup"),
    ("0 or more (0: never)", lambda n: n >= 0, "save_every dev_every sample_every"),
    ("between 0 and 1", lambda x: 0 <= x <= 1, "decay"),
    ("at least 0 and less than 1", lambda x: 0 <= x < 1, "average"),
)


@dataclass(frozen=True)
class Training:
    """A run ends after `steps` or `seconds`, whichever comes first, with its schedule complete."""

    steps: int | None = None
    seconds: float | None = None  # excluding compilation
    slots: int = 65_536  # B · L of the global batch
    accumulate: int = 1
    rate: float = 3e-4  # AdamW
    matrix_rate: float | None = None  # Muon for the blocks' matrices; None: AdamW for those too
    added_rate: float | None = None  # AdamW for what DDOT adds to the trunk; None: `rate`
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    warmup: int = 100
    decay: float = 0.2
    clip: float = 1.0
    average: float = 0.999  # decay of the moving average that is saved as the model; 0: none
    position_factor: float = 10.0  # λ
    position_warmup: int = 0  # steps over which λ rises from 0
    bf16: bool = False
    compile: bool = False
    sharded: bool = False  # FSDP2 instead of DDP, when there are several processes
    only: tuple[str, ...] = ()  # name prefixes of the weights to train; none: all
    device: str = "cpu"
    seed: int = 0
    save_every: int = 1_000  # steps; 0: never, not even at the end
    keep: int = 2  # checkpoints, the last ones
    log_every: int = 10
    dev_every: int = 0
    dev_batches: int = 4
    sample_every: int = 0  # steps between previews; 0: never
    shard_bytes: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for allowed, is_valid, names in _RANGES:
            for name in names.split():
                value = getattr(self, name)
                if value is not None and not is_valid(value):
                    raise ValueError(f"training.{name} must be {allowed}, got {value}")


@dataclass(frozen=True)
class Run:
    """The whole configuration of a run. `ddot train` finds it by name in `recipes`."""

    name: str
    network: Callable[[Vocabulary], DenoiserConfig]
    data: Data
    plans: tuple[Plan, ...]
    training: Training
    start: str | None = None  # a model folder whose weights the network starts with


C = TypeVar("C")


def override(config: C, settings: Sequence[str]) -> C:
    """The configuration with "a.b=value" settings applied, parsed by the types of the fields."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE, such as training.steps=200; got '{setting}'")
        config = _set(config, path.strip().split("."), text.strip(), path)
    return config


def _set(config: Any, names: list[str], text: str, path: str) -> Any:
    """The configuration with the field at `names` set to the parsed text; `path` is for error messages."""
    fields = [field.name for field in dataclasses.fields(config)]
    if names[0] not in fields:
        raise ValueError(f"there is no setting '{path}'; {type(config).__name__} has {', '.join(fields)}")
    value = getattr(config, names[0])
    if len(names) > 1:
        if not dataclasses.is_dataclass(value):
            raise ValueError(f"'{path}' goes too deep: {names[0]} has no parts")
        new = _set(value, names[1:], text, path)
    elif dataclasses.is_dataclass(value):
        parts = ", ".join(field.name for field in dataclasses.fields(value))
        raise ValueError(f"'{path}' is a group of settings; set one of its parts: {parts}")
    else:
        new = _parse(text, typing.get_type_hints(type(config))[names[0]], path)
    return dataclasses.replace(config, **{names[0]: new})


def _pair(text: str) -> tuple[float, float]:
    first, second = map(float, text.split(","))
    return first, second


def _weighted(text: str) -> tuple[tuple[str, float], ...]:
    parts = [part.partition(":") for part in text.split(",") if part]
    return tuple((name.strip(), float(weight or 1)) for name, _, weight in parts)


# How each type of setting is parsed, and what error messages call it.
_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    bool: (lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    str: (str, "a text"),
    tuple[str, ...]: (lambda text: tuple(part.strip() for part in text.split(",") if part.strip()), "NAME,NAME,…"),
    tuple[float, float]: (_pair, "two numbers, A,B"),
    tuple[tuple[str, float], ...]: (_weighted, "NAME:WEIGHT,NAME:WEIGHT,…"),
}


def _parse(text: str, kind: Any, path: str) -> Any:
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in options and text.lower() in ("none", ""):
        return None
    readers = [_READERS[option] for option in options if option in _READERS]
    if not readers:
        raise ValueError(f"{path} is code, not a value; change it in a recipe of your own")
    for read, _ in readers:
        with suppress(ValueError, KeyError):
            return read(text)
    expected = [name for _, name in readers] + ["none"] * (type(None) in options)
    raise ValueError(f"{path} must be {' or '.join(expected)}, got '{text}'")
