"""Other people's checkpoints → a model folder of ours: SEDD, MDLM, Llama-family folders, GGUF files.

New vocabulary rows ([pad], [sep], and [mask] where there was none) and DDOT's additions are made so that step 0
reproduces the base model. Nothing is unpickled except through torch's weights-only reader.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ddot.data.shards import Corpus, fingerprint
from ddot.data.tokenizer import Tokenizer, prune
from ddot.files import seal, whole_folder, writing
from ddot.network.convert.dit import from_dit
from ddot.network.convert.gguf import from_gguf
from ddot.network.convert.llama import from_llama
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.folder import check_weights, load_tensors, model_folder, save_model, without_values

_PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.")
# What has a row for each token.
_PER_TOKEN = ("embed_tokens.weight", "vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias")


def convert(
    source: Path,
    dest: Path,
    tokenizer: Path | None = None,
    keep: Path | None = None,
    least: int = 1,
) -> DenoiserConfig:
    """Write `dest`. `tokenizer` for checkpoints that bring none; `keep`: a packed corpus or a model to prune it to."""
    if dest.exists():  # before the work
        raise ValueError(f"{dest} exists already; remove it or choose another name")
    if not source.exists():
        raise FileNotFoundError(f"nothing at {source}; give a GGUF file or a folder with a checkpoint")
    if source.suffix == ".gguf":
        config, trunk, encoder = from_gguf(source)
    else:
        config, trunk, encoder = from_folder(source, tokenizer)
    if keep is not None:
        config, trunk, encoder = pruned(config, trunk, encoder, keep, least)
    weights = {**_additions(config), **{f"trunk.{name}": weight for name, weight in trunk.items()}}
    check_weights(without_values(config), weights, source)
    with whole_folder(dest) as draft, writing(dest):
        save_model(weights, config, encoder, {"converted_from": source.name}, draft)
        seal(draft)
    return config


def _additions(config: DenoiserConfig) -> dict[str, Tensor]:
    """Fresh weights of all that is not the trunk, which is not built for it."""
    trunk = dataclasses.replace(config.trunk, blocks=0, vocabulary=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fresh = Denoiser(dataclasses.replace(config, trunk=trunk)).state_dict()
    return {name: weight for name, weight in fresh.items() if not name.startswith("trunk.")}


def from_folder(source: Path, tokenizer: Path | None) -> tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]:
    """A checkpoint folder, recognised by the names of its weights."""
    folder = source if source.is_dir() else source.parent
    weights = _read_weights(source)
    normalised = any("backbone." in name for name in weights)
    names = {_bare(name): weights.pop(name) for name in list(weights)}
    is_dit = "vocab_embed.embedding" in names
    if not is_dit and "embed_tokens.weight" not in names:
        raise ValueError(f"{source} is neither a SEDD, MDLM nor Llama checkpoint: it has {', '.join([*names][:3])} …")
    try:
        encoder = Tokenizer.load(tokenizer or folder)
    except FileNotFoundError:
        if tokenizer:
            raise
        whose = "GPT-2's" if is_dit else "the model's"
        raise FileNotFoundError(f"{folder} brings no tokenizer.json; name {whose} with --tokenizer") from None
    if is_dit:
        return from_dit(names, encoder, normalised)
    return from_llama(names, _read_config(folder / "config.json"), encoder)


def _read_weights(source: Path) -> dict[str, Tensor]:
    if source.suffix == ".safetensors":
        return load_tensors(source.parent, source.stem)
    if source.is_dir() and any(source.glob("model.safetensors*")):
        return load_tensors(source, "model")
    files = [source]
    if source.is_dir():
        files = sorted(source.glob("pytorch_model*.bin")) or sorted(source.glob("*.bin"))
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            read = torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # unpickling errors have no common class, and their words tell how to switch safety off
            raise ValueError(
                f"{file} is damaged, or holds more than tensors, which is not read because it could run code; "
                "convert it to safetensors where you trust it"
            ) from None
        if not isinstance(read, dict) or not all(isinstance(weight, Tensor) for weight in read.values()):
            raise ValueError(f"{file} is no plain table of named tensors; save the model's state_dict alone")
        weights |= read
    if not weights:
        raise FileNotFoundError(f"no model.safetensors and no .bin in {source}")
    return weights


def _read_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; a Llama checkpoint wants its config.json")
    try:
        about = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise ValueError(f"{file} does not describe a model: wanted a JSON object")
    return about


def _bare(name: str) -> str:
    while name.startswith(_PREFIXES):
        name = name.partition(".")[2]
    return name


def _uses(keep: Path, tokenizer: Tokenizer) -> Int[np.ndarray, "base"]:
    """How often a packed corpus uses each token; for a model folder, whether its vocabulary has the token."""
    if not (keep / "counts.npy").is_file() and any((keep / name).exists() for name in ("config.json", "latest")):
        theirs = Tokenizer.load(model_folder(keep)).encoder.get_vocab()
        uses = np.zeros(tokenizer.vocabulary.base, np.int64)
        ours = tokenizer.encoder.get_vocab()
        if strange := [token for token in theirs if token not in ours]:
            raise ValueError(
                f"{keep} has {len(strange)} tokens that the checkpoint has not ({strange[0]!r} for one); "
                "prune to a model with the same tokenizer"
            )
        uses[[ours[token] for token in theirs]] = np.iinfo(np.int64).max
        return uses
    corpus = Corpus(keep)
    if corpus.tokenizer != fingerprint(tokenizer):
        raise ValueError(f"{keep} was packed with another tokenizer; pack it with the checkpoint's own")
    return corpus.counts()


def pruned(
    config: DenoiserConfig, trunk: dict[str, Tensor], tokenizer: Tokenizer, keep: Path, least: int
) -> tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]:
    """The same model with the vocabulary cut down to what `keep` uses; embedding rows follow."""
    smaller, old = prune(tokenizer, _uses(keep, tokenizer), least)
    new = smaller.vocabulary
    # All rows after the ordinary tokens are alike but for [mask], the first of them.
    special = tokenizer.vocabulary.base + np.minimum(np.arange(new.rows - new.base), 1)
    rows = torch.from_numpy(np.concatenate([old, special]))
    trunk = trunk | {name: trunk[name][rows] for name in _PER_TOKEN if name in trunk}
    smaller_trunk = dataclasses.replace(config.trunk, vocabulary=new.rows)
    return dataclasses.replace(config, vocabulary=new, trunk=smaller_trunk), trunk, smaller
