"""Converts SEDD and MDLM checkpoints, Llama-family folders and GGUF files to model folders.

New vocabulary rows ([pad], [sep], and [mask] where there was none) and DDOT's additions are initialised so that step 0
reproduces the base model. Pickles are only read by torch's weights-only loader.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from tokenizers import models, pre_tokenizers
from torch import Tensor

from ddot.core.absorbing import CleanToken, ScoreEntropy
from ddot.core.records import Vocabulary
from ddot.data.shards import Corpus, fingerprint
from ddot.data.tokenizer import Tokenizer, byte_level, prune
from ddot.files import seal, whole_folder, writing
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.folder import check_weights, load_tensors, save_model, without_values
from ddot.network.llama import LlamaConfig
from ddot.network.places import model_folder, read_json
from ddot.version import extra

Converted = tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]  # the dict: weights of the trunk

_PREFIXES = r"^(?:(?:module|_orig_mod|model|backbone)\.)+"
# Weights with a row per token.
_PER_TOKEN = ("embed_tokens.weight", "vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias")
_NEW_LOGIT = -10.0  # bias of new rows relative to the mean: e^-10 of a token's mean probability
_SPARE = 1024  # unused rows allowed beyond the tokenizer's

_GGUF_PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
_GGUF_WHOLE = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}


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
    trunk = replace(config.trunk, blocks=0, vocabulary=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fresh = Denoiser(replace(config, trunk=trunk)).state_dict()
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
    return from_llama(names, read_json(folder / "config.json"), encoder)


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
            content = torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # unpickling errors have no common class, and their message explains how to disable the check
            raise ValueError(
                f"{file} is damaged, or holds more than tensors, which could run code; "
                "convert it to safetensors where you trust it"
            ) from None
        if not isinstance(content, dict) or not all(isinstance(weight, Tensor) for weight in content.values()):
            raise ValueError(f"{file} is not a plain dict of named tensors; save only the model's state_dict")
        weights |= content
    if not weights:
        raise FileNotFoundError(f"no model.safetensors and no .bin in {source}")
    return weights


def _take(names: dict[str, Tensor], name: str, *shape: int) -> Tensor:
    """The named weight in float32, removed from `names` to free its memory."""
    if name not in names:
        raise ValueError(f"the checkpoint has no '{name}'; it is incomplete or of another family")
    weight = names.pop(name)
    if shape and tuple(weight.shape) != shape:
        raise ValueError(f"'{name}' has shape {tuple(weight.shape)}, the model needs {shape}")
    return weight.float()


def from_dit(names: dict[str, Tensor], tokenizer: Tokenizer, normalised: bool) -> Converted:
    """Convert SEDD (scores) or MDLM (`normalised`), by the weight names of the public checkpoints."""
    names = {name: w.float() for name, w in names.items() if not name.startswith(("rotary_emb.", "noise."))}
    embedding = _take(names, "vocab_embed.embedding")
    rows, width = embedding.shape
    vocabulary = Vocabulary(rows - 1)  # the last row is [mask]
    if tokenizer.vocabulary != vocabulary:
        raise ValueError(f"the tokenizer has {tokenizer.vocabulary.base} tokens, the checkpoint {rows - 1} and [mask]")
    if normalised:
        names |= _without_time(names)
    blocks = {name.split(".")[1] for name in names if name.startswith("blocks.")}
    condition = names.get("sigma_map.mlp.2.bias", torch.zeros(1)).shape[0]
    # Both families have heads of 64.
    trunk = DiTConfig(width, len(blocks), max(1, width // 64), vocabulary.rows, condition)
    score = CleanToken() if normalised else ScoreEntropy(states=rows)
    new = vocabulary.rows - rows
    head, bias = _take(names, "output_layer.linear.weight", rows, width), _take(names, "output_layer.linear.bias", rows)
    names["vocab_embed.embedding"] = torch.cat([embedding, embedding[:-1].mean(0).expand(new, -1)])
    names["output_layer.linear.weight"] = torch.cat([head, head[:-1].mean(0).expand(new, -1)])
    names["output_layer.linear.bias"] = torch.cat([bias, (bias[:-1].mean() + _NEW_LOGIT).expand(new)])
    # In SEDD's positions clean neighbours are 1 apart, as in our rotary units.
    return DenoiserConfig(trunk, vocabulary, score), names, tokenizer


def _without_time(names: dict[str, Tensor]) -> dict[str, Tensor]:
    """MDLM's noise map made constant in σ: it was trained with σ = 0 only."""
    first, second = ([_take(names, f"sigma_map.mlp.{i}.{kind}") for kind in ("weight", "bias")] for i in (0, 2))
    half = first[0].shape[1] // 2
    waves = torch.cat([torch.ones(half), torch.zeros(half)])  # cosines and sines of 0
    output = second[0] @ torch.nn.functional.silu(first[0] @ waves + first[1]) + second[1]
    constant = {"0.weight": first[0], "0.bias": first[1], "2.weight": torch.zeros_like(second[0]), "2.bias": output}
    return {f"sigma_map.mlp.{name}": weight for name, weight in constant.items()}


def from_llama(names: dict[str, Tensor], about: dict[str, Any], tokenizer: Tokenizer) -> Converted:
    """Convert weights with Hugging Face's names, removing them from `names`; `about` is its config.json."""
    trunk = llama_config(about, tokenizer.vocabulary.rows)
    width, inner, D = trunk.width, trunk.inner_width, trunk.head_width
    embedding = _take(names, "embed_tokens.weight")
    head = names.pop("lm_head.weight", None)
    tied = about.get("tie_word_embeddings", False)
    if not tied and (head is None or not torch.equal(head.float(), embedding)):
        raise ValueError("this checkpoint has a separate output matrix; only tied embeddings are supported")
    weights = {"embed_tokens.weight": _with_new_rows(embedding, width, tokenizer)}
    del embedding, head
    for i in range(trunk.blocks):
        old, new = f"layers.{i}.", f"blocks.{i}."
        heads = {"q": trunk.heads, "k": trunk.key_heads, "v": trunk.key_heads}
        qkv = [_take(names, f"{old}self_attn.{part}_proj.weight", n * D, width) for part, n in heads.items()]
        weights[new + "attn_qkv.weight"] = torch.cat(qkv)
        weights[new + "attn_out.weight"] = _take(names, old + "self_attn.o_proj.weight", width, trunk.heads * D)
        gate_and_up = [_take(names, f"{old}mlp.{part}_proj.weight", inner, width) for part in ("gate", "up")]
        weights[new + "mlp_in.weight"] = torch.cat(gate_and_up)
        weights[new + "mlp_out.weight"] = _take(names, old + "mlp.down_proj.weight", width, inner)
        weights[new + "norm1.weight"] = _take(names, old + "input_layernorm.weight", width)
        weights[new + "norm2.weight"] = _take(names, old + "post_attention_layernorm.weight", width)
    weights["norm.weight"] = _take(names, "norm.weight", width)
    if unknown := [name for name in names if "rotary_emb." not in name]:
        raise ValueError(
            f"the checkpoint has weights that no Llama has: {', '.join(unknown[:3])}; it cannot be converted"
        )
    return DenoiserConfig.extended(trunk, tokenizer.vocabulary), weights, tokenizer


def llama_config(about: dict[str, Any], rows: int) -> LlamaConfig:
    """The network that Hugging Face's config.json describes; unsupported variants are refused."""
    heads = about.get("num_attention_heads")
    sizes = {name: about.get(name) for name in ("hidden_size", "num_hidden_layers", "intermediate_size")}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": about.get("num_key_value_heads") or heads}
    if wrong := [name for name, size in sizes.items() if not isinstance(size, int) or size < 1]:
        raise ValueError(f"the model's config has no whole number for {', '.join(wrong)}")
    width, blocks, inner, heads, key_heads = (int(size) for size in sizes.values())  # type: ignore[arg-type]
    rotary = about.get("rope_parameters") or {}
    scaling = about.get("rope_scaling") or rotary
    for name, value, supported in (
        ("model_type", about.get("model_type", "llama"), "llama"),
        ("hidden_act", about.get("hidden_act", "silu"), "silu"),
        ("rope_scaling", scaling.get("rope_type", scaling.get("type", "default")), "default"),
        ("head_dim", about.get("head_dim") or width // heads, width / heads),
        ("heads for each key head", heads / key_heads, heads // key_heads),
    ):
        if value != supported:
            raise ValueError(f"the model has {name} {value}; only {supported} is supported")
    base = float(about.get("rope_theta") or rotary.get("rope_theta") or 10_000.0)
    norm_eps = float(f"{about.get('rms_norm_eps', 1e-6):.6g}")  # GGUF stores it in float32
    return LlamaConfig(width, blocks, heads, key_heads, inner, rows, base, norm_eps)


def _with_new_rows(embedding: Tensor, width: int, tokenizer: Tokenizer) -> Tensor:
    base, rows = tokenizer.vocabulary.base, tokenizer.vocabulary.rows
    if embedding.shape[1:] != (width,) or not base <= len(embedding) <= base + _SPARE:
        raise ValueError(
            f"the tokenizer has {base} tokens and config.json a width of {width}, but the checkpoint's embeddings are "
            f"{tuple(embedding.shape)}; these files do not belong together"
        )
    known = embedding[:base]
    return torch.cat([known, known.mean(0).expand(rows - base, -1)])


def from_gguf(file: Path) -> Converted:
    """Convert a Llama-family GGUF file: dequantise its weights, map names to Hugging Face's, read its tokenizer."""
    with extra("reading GGUF", "gguf"):
        import gguf
    try:
        reader = gguf.GGUFReader(str(file))
        about = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # bad files raise many kinds of errors
        raise ValueError(f"{file} is not a GGUF file, or is truncated ({error})") from None
    if about.get("general.architecture") != "llama":
        raise ValueError(f"{file} holds a {about.get('general.architecture')} model; only Llama models are supported")
    config = _gguf_config(about)
    tokenizer = gguf_tokenizer(about)
    trunk = llama_config(config, tokenizer.vocabulary.rows)
    names = {}
    for tensor in reader.tensors:
        name = _gguf_name(tensor.name)
        try:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise ValueError(f"{file} is quantised as {tensor.tensor_type.name}, which is not supported") from None
        weight = torch.from_numpy(np.require(values, np.float32, "W"))
        if name.endswith(("q_proj.weight", "k_proj.weight")) and not len(weight) % trunk.head_width:
            # GGUF stores rotary pairs side by side, we store them half a head apart.
            weight = weight.unflatten(0, (-1, trunk.head_width // 2, 2)).transpose(1, 2).reshape(weight.shape)
        names[name] = weight
    config["tie_word_embeddings"] = "lm_head.weight" not in names
    return from_llama(names, config, tokenizer)


def _gguf_config(about: dict[str, Any]) -> dict[str, Any]:
    """The fields of Hugging Face's config.json."""
    heads = about.get("llama.attention.head_count")
    return {
        "hidden_size": about.get("llama.embedding_length"),
        "num_hidden_layers": about.get("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": about.get("llama.attention.head_count_kv", heads),
        "intermediate_size": about.get("llama.feed_forward_length"),
        "head_dim": about.get("llama.attention.key_length") or about.get("llama.rope.dimension_count"),
        "rope_theta": about.get("llama.rope.freq_base"),
        "rope_scaling": {"type": about.get("llama.rope.scaling.type", "none").replace("none", "default")},
        "rms_norm_eps": about.get("llama.attention.layer_norm_rms_epsilon", 1e-6),
    }


def _gguf_name(name: str) -> str:
    """Hugging Face's name of a GGUF tensor."""
    match name.split("."):
        case [whole, "weight"] if whole in _GGUF_WHOLE:
            return f"{_GGUF_WHOLE[whole]}.weight"
        case ["blk", layer, part, "weight"] if part in _GGUF_PARTS:
            return f"layers.{layer}.{_GGUF_PARTS[part]}.weight"
    return name  # refused later, by name


def gguf_tokenizer(about: dict[str, Any]) -> Tokenizer:
    """The byte-level BPE inside a GGUF file."""
    kind = about.get("tokenizer.ggml.pre", "default")
    if about.get("tokenizer.ggml.model") != "gpt2" or kind not in ("smollm", "gpt-2", "default"):
        raise ValueError(f"tokenizer '{about.get('tokenizer.ggml.model')}/{kind}' is not supported; use a Llama folder")
    vocab = {token: row for row, token in enumerate(about["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in about["tokenizer.ggml.merges"]]
    encoder = byte_level(models.BPE(vocab, merges))
    if kind == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        encoder.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return Tokenizer(encoder)


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
    return replace(config, vocabulary=new, trunk=replace(config.trunk, vocabulary=new.rows)), trunk, smaller
