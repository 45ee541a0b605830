"""Models on disk: safetensors and JSON only, so nothing is ever unpickled.

A model folder holds model.safetensors (or several, with an index), config.json, tokenizer.json, meta.json, and
sha256.json with checksums that are verified on loading. Folders without checksums load too.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ddot.core.absorbing import CleanToken, ScoreEntropy
from ddot.core.records import Vocabulary
from ddot.data.tokenizer import Tokenizer
from ddot.files import check_seal, is_sealed
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.int8 import SCALE, decompress, run_in_int8
from ddot.network.llama import LlamaConfig
from ddot.network.places import model_folder, read_json

# Classes that config.json names.
_CLASSES = {cls.__name__: cls for cls in (DiTConfig, LlamaConfig, ScoreEntropy, CleanToken, Vocabulary, DenoiserConfig)}
# Fields that config.json stores under an older name, so that earlier models still load.
_STORED = {"gap_lengths": "rooms"}
_FIELDS = {stored: field for field, stored in _STORED.items()}
_LARGEST = 1 << 20  # a larger size is a mistake


def config_to_json(config: Any) -> Any:
    """A dataclass as JSON: its class under "is", then its fields."""
    if dataclasses.is_dataclass(config):
        names = [f.name for f in dataclasses.fields(config)]
        fields = {_STORED.get(name) or name: config_to_json(getattr(config, name)) for name in names}
        return {"is": type(config).__name__, **fields}
    return config


def config_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {_FIELDS.get(name) or name: config_from_json(inner) for name, inner in value.items() if name != "is"}
        if value.get("is") not in _CLASSES:
            raise ValueError(f"config.json names '{value.get('is')}'; this version knows {', '.join(_CLASSES)}")
        kind = _CLASSES[value["is"]]
        for name, expected in get_type_hints(kind).items():
            without_blocks = name == "blocks" and fields.get(name) == 0  # embeddings alone are a network
            if name in fields and not without_blocks and not _fits(fields[name], expected):
                shown = json.dumps(value[_STORED.get(name) or name])[:40]
                raise ValueError(f"config.json has {shown} for '{name}', which is not a valid value; restore the file")
        try:
            return kind(**fields)
        except TypeError as error:  # unknown or missing fields
            raise ValueError(f"config.json does not fit this version: {error}") from None
    return value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is valid for a field of this type. All int fields are sizes."""
    if get_args(kind):
        return any(_fits(value, option) for option in get_args(kind))
    if isinstance(value, bool) or kind not in (int, float):
        return isinstance(value, kind) and kind is not int
    return isinstance(value, int | float) if kind is float else isinstance(value, int) and 0 < value <= _LARGEST


def save_tensors(tensors: Mapping[str, Tensor], folder: Path, name: str, shard_bytes: int | None = None) -> None:
    """Write `name`.safetensors, or `name`-0001-of-N.safetensors … and an index if it would exceed `shard_bytes`."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for key, tensor in tensors.items():
        size += tensor.nbytes
        if shard_bytes and size > shard_bytes and shards[-1]:
            shards.append({})
            size = tensor.nbytes
        shards[-1][key] = tensor.detach().cpu().contiguous()
    if len(shards) == 1:
        _save_file(shards[0], folder / f"{name}.safetensors")
        return
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"{name}-{number:04d}-of-{len(shards):04d}.safetensors"
        _save_file(shard, folder / file)
        index |= dict.fromkeys(shard, file)
    (folder / f"{name}.safetensors.index.json").write_text(json.dumps({"weight_map": index}, indent=1))


def _save_file(tensors: dict[str, Tensor], path: Path) -> None:
    """Write one file with default permissions; safetensors creates 0600."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path)
    except SafetensorError as error:  # mostly a full disk
        raise OSError(str(error)) from None
    path.chmod(mode)


def load_tensors(folder: Path, name: str) -> dict[str, Tensor]:
    """The tensors that `save_tensors` wrote."""
    index = folder / f"{name}.safetensors.index.json"
    files = [f"{name}.safetensors"]
    if index.is_file():
        named = read_json(index).get("weight_map")
        if not isinstance(named, dict):
            raise ValueError(f'{index} is damaged: it has no "weight_map"')
        files = sorted(set(named.values()))
    tensors: dict[str, Tensor] = {}
    for file in files:
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{folder / file} is missing")
        try:
            tensors |= load_file(folder / file)
        except SafetensorError as error:
            raise ValueError(f"{folder / file} is damaged or not a safetensors file ({error}); restore it") from None
    return tensors


def save_model(
    weights: Mapping[str, Tensor],
    config: DenoiserConfig,
    tokenizer: Tokenizer,
    meta: dict[str, Any],
    folder: Path,
    shard_bytes: int | None = None,
) -> None:
    """Write a model into an existing folder."""
    save_tensors(weights, folder, "model", shard_bytes)
    (folder / "config.json").write_text(json.dumps(config_to_json(config), indent=1))
    tokenizer.save(folder / "tokenizer.json")
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))


def load_config(path: Path | str) -> DenoiserConfig:
    config = config_from_json(read_json(model_folder(path) / "config.json"))
    if not isinstance(config, DenoiserConfig):
        raise ValueError(f"{path}/config.json does not describe a ddot network; see `ddot convert`")
    return config


class _NoValues(TorchFunctionMode):
    """Skips weight initialisation, whose imports alone take over a second on `meta`."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return arguments[0] if arguments else keywords["tensor"]
        return function(*arguments, **keywords)


def without_values(config: DenoiserConfig) -> Denoiser:
    """The network on `meta`: names and shapes without values."""
    with torch.device("meta"), _NoValues():
        return Denoiser(config)


def load_model(path: Path | str, int8: bool = False) -> tuple[Denoiser, Tokenizer]:
    """The network (on the CPU, in float32 or with int8 matrices) and the tokenizer of a model folder."""
    folder = model_folder(path)
    config, tokenizer = load_config(folder), Tokenizer.load(folder)
    check_vocabulary(config, tokenizer, folder)
    model = without_values(config)
    stored = load_weights(folder, model)
    if int8:
        run_in_int8(model, stored)
    else:
        model.load_state_dict(decompress(stored), assign=True)
    return model.eval(), tokenizer


def load_weights(
    folder: Path, model: torch.nn.Module, defaults: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The weights of a model folder as they are stored, checked against the network and the checksums.

    `defaults`: weights that the folder may lack. Reading the checksums of the embedded model's 129 MB takes 0.1 s.
    """
    stored = {**(defaults or {}), **load_tensors(folder, "model")}
    check_weights(model, stored, folder)
    if is_sealed(folder):
        check_seal(folder, "model")
    return stored


def check_weights(model: torch.nn.Module, stored: Mapping[str, Tensor], where: Path | str) -> None:
    """Refuse weights whose names or shapes are not the network's."""
    expected = model.state_dict()
    weights = {name: weight for name, weight in stored.items() if not name.endswith(SCALE)}
    missing, extra = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    wrong = [name for name in expected.keys() & weights.keys() if expected[name].shape != weights[name].shape]
    if missing or extra or wrong:
        raise ValueError(
            f"the weights in {where} do not fit its config.json: "
            f"missing {missing[:3]}, unexpected {extra[:3]}, of the wrong shape {wrong[:3]}"
        )


def check_vocabulary(config: DenoiserConfig, tokenizer: Tokenizer, where: Path | str) -> None:
    if config.vocabulary != tokenizer.vocabulary:
        raise ValueError(
            f"the tokenizer in {where} has {tokenizer.vocabulary.base} tokens, the network {config.vocabulary.base}; "
            "use the tokenizer.json the network was trained with"
        )
