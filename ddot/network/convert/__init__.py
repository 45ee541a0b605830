"""Converts SEDD and MDLM checkpoints, Llama-family folders and GGUF files to model folders.

New vocabulary rows ([pad], [sep], [mask] if there was none) and DDOT's additions are initialised so that step 0
reproduces the base model. Nothing is unpickled except through torch's weights-only reader.
"""

import dataclasses
import re
from pathlib import Path

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
from ddot.network.convert.weights import Converted
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.folder import check_weights, load_tensors, save_model, without_values
from ddot.network.places import model_folder, read_json

_PREFIXES = r"^(?:(?:module|_orig_mod|model|backbone)\.)+"
# Weights with a row per token.
_PER_TOKEN = ("embed_tokens.weight", "vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias")


def convert(
    source: Path, dest: Path, tokenizer: Path | None = None, keep: Path | None = None, least: int = 1
) -> DenoiserConfig:
    """Write `dest`. `tokenizer`: for checkpoints without one. `keep`: a corpus or model whose tokens are kept."""
    if dest.exists():  # checked before the conversion
        raise ValueError(f"{dest} exists already; remove it or choose another name")
    if not source.exists():
        raise FileNotFoundError(f"nothing at {source}; give a GGUF file or a folder with a checkpoint")
    converted = from_gguf(source) if source.suffix == ".gguf" else from_folder(source, tokenizer)
    config, trunk, encoder = converted if keep is None else pruned(converted, keep, least)
    weights = {**_additions(config), **{f"trunk.{name}": weight for name, weight in trunk.items()}}
    check_weights(without_values(config), weights, source)
    with whole_folder(dest) as draft, writing(dest):
        save_model(weights, config, encoder, {"converted_from": source.name}, draft)
        seal(draft)
    return config


def _additions(config: DenoiserConfig) -> dict[str, Tensor]:
    """Freshly initialised weights of everything but the trunk."""
    trunk = dataclasses.replace(config.trunk, blocks=0, vocabulary=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fresh = Denoiser(dataclasses.replace(config, trunk=trunk)).state_dict()
    return {name: weight for name, weight in fresh.items() if not name.startswith("trunk.")}


def from_folder(source: Path, tokenizer: Path | None) -> Converted:
    """Convert a checkpoint folder; weight names identify the family."""
    folder = source if source.is_dir() else source.parent
    weights = _read_weights(source)
    normalised = any("backbone." in name for name in weights)
    names = {re.sub(_PREFIXES, "", name): weights.pop(name) for name in list(weights)}
    is_dit = "vocab_embed.embedding" in names
    if not is_dit and "embed_tokens.weight" not in names:
        raise ValueError(f"{source} is neither a SEDD, MDLM nor Llama checkpoint: it has {', '.join([*names][:3])} …")
    try:
        encoder = Tokenizer.load(tokenizer or folder)
    except FileNotFoundError:
        if tokenizer:
            raise
        whose = "GPT-2's" if is_dit else "the model's"
        raise FileNotFoundError(f"{folder} has no tokenizer.json; name {whose} with --tokenizer") from None
    if is_dit:
        return from_dit(names, encoder, normalised)
    about = read_json(folder / "config.json")
    if not isinstance(about, dict):
        raise ValueError(f"{folder / 'config.json'} does not describe a model; it must hold a JSON object")
    return from_llama(names, about, encoder)


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
        except Exception:  # unpickling errors have no common class, and their message explains how to disable the check
            raise ValueError(
                f"{file} is damaged, or holds more than tensors, which could run code; "
                "convert it to safetensors where you trust it"
            ) from None
        if not isinstance(read, dict) or not all(isinstance(weight, Tensor) for weight in read.values()):
            raise ValueError(f"{file} is not a plain dict of named tensors; save only the model's state_dict")
        weights |= read
    if not weights:
        raise FileNotFoundError(f"no model.safetensors and no .bin in {source}")
    return weights


def _uses(keep: Path, tokenizer: Tokenizer) -> Int[np.ndarray, "base"]:
    """Token counts of a packed corpus; for a model folder, a huge count for every token of its vocabulary."""
    if not (keep / "counts.npy").is_file() and any((keep / name).exists() for name in ("config.json", "latest")):
        theirs = Tokenizer.load(model_folder(keep)).encoder.get_vocab()
        uses = np.zeros(tokenizer.vocabulary.base, np.int64)
        ours = tokenizer.encoder.get_vocab()
        if unknown := [token for token in theirs if token not in ours]:
            raise ValueError(
                f"{keep} has {len(unknown)} tokens that the checkpoint lacks, such as {unknown[0]!r}; "
                "prune to a model with the same tokenizer"
            )
        uses[[ours[token] for token in theirs]] = np.iinfo(np.int64).max
        return uses
    corpus = Corpus(keep)
    if corpus.tokenizer != fingerprint(tokenizer):
        raise ValueError(f"{keep} was packed with another tokenizer; pack it with the checkpoint's")
    return corpus.counts()


def pruned(converted: Converted, keep: Path, least: int) -> Converted:
    """The model with its vocabulary and embedding rows reduced to the tokens that `keep` uses."""
    config, trunk, tokenizer = converted
    smaller, old = prune(tokenizer, _uses(keep, tokenizer), least)
    new = smaller.vocabulary
    # All rows after the ordinary tokens are equal, except [mask], the first of them.
    special = tokenizer.vocabulary.base + np.minimum(np.arange(new.rows - new.base), 1)
    rows = torch.from_numpy(np.concatenate([old, special]))
    trunk = trunk | {name: trunk[name][rows] for name in _PER_TOKEN if name in trunk}
    smaller_trunk = dataclasses.replace(config.trunk, vocabulary=new.rows)
    return dataclasses.replace(config, vocabulary=new, trunk=smaller_trunk), trunk, smaller
