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
from tokenizers import models, pre_tokenizers
from torch import Tensor

from ddot.absorbing import CleanToken, ScoreEntropy
from ddot.backbones.dit import DiTConfig
from ddot.backbones.llama import LlamaConfig
from ddot.checkpoint import check_weights, load_tensors, save_model
from ddot.denoiser import Denoiser, DenoiserConfig
from ddot.packing import Corpus
from ddot.tokens import Tokenizer, Vocabulary, byte_level, prune

_NEW_LOGIT = -10.0  # of rows a normalised model did not have: e^-10 of a typical token's share


def convert(
    source: Path,
    dest: Path,
    tokenizer: Path | None = None,
    keep: Path | None = None,
    least: int = 1,
) -> DenoiserConfig:
    """Write `dest`. `tokenizer` for checkpoints that bring none; `keep`: prune the vocabulary to a packed corpus's."""
    if dest.exists():
        raise ValueError(f"{dest} exists already; remove it or choose another name")
    if not source.exists():
        raise FileNotFoundError(f"nothing at {source}; give a GGUF file or a folder with a checkpoint")
    if source.suffix == ".gguf":
        config, trunk, encoder = from_gguf(source)
    else:
        config, trunk, encoder = from_folder(source, tokenizer)
    if keep is not None:
        config, trunk, encoder = pruned(config, trunk, encoder, keep, least)
    torch.manual_seed(0)
    model = Denoiser(config)
    fresh = {name: weight for name, weight in model.state_dict().items() if not name.startswith("trunk.")}
    weights = {**fresh, **{f"trunk.{name}": weight for name, weight in trunk.items()}}
    check_weights(model, weights, source)
    dest.mkdir(parents=True)
    save_model(weights, config, encoder, {"converted_from": source.name}, dest)
    return config


def from_folder(folder: Path, tokenizer: Path | None) -> tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]:
    """A checkpoint folder, recognised by the names of its weights."""
    weights = _read_weights(folder)
    names = {_bare(name): weight for name, weight in weights.items()}
    where = tokenizer or folder
    if "vocab_embed.embedding" in names:
        if tokenizer is None and not (folder / "tokenizer.json").is_file():
            raise ValueError(f"{folder} brings no tokenizer.json; name GPT-2's with --tokenizer")
        normalised = any(name.startswith("backbone.") or ".backbone." in name for name in weights)
        return from_dit(names, Tokenizer.load(where), normalised)
    if "embed_tokens.weight" in names:
        return from_llama(names, json.loads((folder / "config.json").read_text()), Tokenizer.load(where))
    raise ValueError(f"{folder} is neither a SEDD, MDLM nor Llama checkpoint: it has {sorted(weights)[:3]} …")


def _read_weights(folder: Path) -> dict[str, Tensor]:
    if (folder / "model.safetensors").is_file() or (folder / "model.safetensors.index.json").is_file():
        return load_tensors(folder, "model")
    for file in sorted(folder.glob("*.bin")) if folder.is_dir() else [folder]:
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # unpickling errors have no common class
            raise ValueError(f"{file} cannot be read safely ({error}); convert it to safetensors first") from None
    raise FileNotFoundError(f"no model.safetensors and no .bin in {folder}")


def _bare(name: str) -> str:
    for prefix in ("module.", "_orig_mod.", "model.", "backbone."):
        name = name.removeprefix(prefix)
    return name


def from_dit(
    names: dict[str, Tensor], tokenizer: Tokenizer, normalised: bool
) -> tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]:
    """SEDD (scores), or MDLM (normalised; weights under `backbone.`)."""
    names = {name: w.float() for name, w in names.items() if not name.startswith(("rotary_emb.", "noise."))}
    rows, width = names["vocab_embed.embedding"].shape
    vocabulary = Vocabulary(rows - 1)  # the last row is [mask]
    if tokenizer.vocabulary != vocabulary:
        raise ValueError(f"the tokenizer has {tokenizer.vocabulary.base} tokens, the checkpoint {rows - 1} and [mask]")
    blocks = 1 + max(int(name.split(".")[1]) for name in names if name.startswith("blocks."))
    condition = names["sigma_map.mlp.2.weight"].shape[0]
    # Both families have heads of 64.
    trunk = DiTConfig(width, blocks, max(1, width // 64), vocabulary.rows, condition)
    score = CleanToken() if normalised else ScoreEntropy(states=rows)
    new = vocabulary.rows - rows
    embedding = names["vocab_embed.embedding"]
    names["vocab_embed.embedding"] = torch.cat([embedding, embedding[:-1].mean(0).expand(new, -1)])
    names["output_layer.linear.weight"] = torch.cat([names["output_layer.linear.weight"], torch.zeros(new, width)])
    low = torch.full((new,), _NEW_LOGIT)
    names["output_layer.linear.bias"] = torch.cat([names["output_layer.linear.bias"], low])
    # In SEDD's own units clean neighbours are 1 apart, which is the token unit.
    return DenoiserConfig(trunk, vocabulary, score), names, tokenizer


def from_llama(
    names: dict[str, Tensor], about: dict[str, Any], tokenizer: Tokenizer
) -> tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]:
    """A Llama-family folder with Hugging Face's names."""
    trunk = LlamaConfig(
        width=about["hidden_size"],
        blocks=about["num_hidden_layers"],
        heads=about["num_attention_heads"],
        key_heads=about.get("num_key_value_heads", about["num_attention_heads"]),
        inner_width=about["intermediate_size"],
        vocabulary=tokenizer.vocabulary.rows,
        rotary_base=float(about.get("rope_theta", 10_000.0)),
        norm_eps=float(f"{about['rms_norm_eps']:.6g}"),  # GGUF stores it in float32
    )
    if "lm_head.weight" in names and not about.get("tie_word_embeddings", False):
        raise ValueError("this checkpoint has an output matrix of its own; only tied embeddings are supported")
    weights = {"embed_tokens.weight": _with_new_rows(names["embed_tokens.weight"], tokenizer)}
    for i in range(trunk.blocks):
        old, new = f"layers.{i}.", f"blocks.{i}."
        qkv = [names[f"{old}self_attn.{part}_proj.weight"] for part in "qkv"]
        weights[new + "attn_qkv.weight"] = torch.cat(qkv).float()
        weights[new + "attn_out.weight"] = names[old + "self_attn.o_proj.weight"].float()
        both = [names[f"{old}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        weights[new + "mlp_in.weight"] = torch.cat(both).float()
        weights[new + "mlp_out.weight"] = names[old + "mlp.down_proj.weight"].float()
        weights[new + "norm1.weight"] = names[old + "input_layernorm.weight"].float()
        weights[new + "norm2.weight"] = names[old + "post_attention_layernorm.weight"].float()
    weights["norm.weight"] = names["norm.weight"].float()
    return DenoiserConfig.extended(trunk, tokenizer.vocabulary), weights, tokenizer


def _with_new_rows(embedding: Tensor, tokenizer: Tokenizer) -> Tensor:
    base, rows = tokenizer.vocabulary.base, tokenizer.vocabulary.rows
    if len(embedding) < base:
        raise ValueError(f"the tokenizer has {base} tokens, the checkpoint only {len(embedding)} rows")
    known = embedding[:base].float()
    return torch.cat([known, known.mean(0).expand(rows - base, -1)])


def from_gguf(file: Path) -> tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]:
    """A Llama-family GGUF file, dequantised."""
    try:
        import gguf
    except ImportError:
        raise ValueError("reading GGUF needs the extra `gguf`: pip install 'ddot[gguf]'") from None
    try:
        reader = gguf.GGUFReader(str(file))
    except (ValueError, OSError, IndexError) as error:
        raise ValueError(f"{file} is not a GGUF file, or is cut short ({error})") from None
    about = {name: field.contents() for name, field in reader.fields.items()}
    if about.get("general.architecture") != "llama":
        raise ValueError(f"{file} holds a {about.get('general.architecture')} model; only the Llama family is known")
    tokenizer = gguf_tokenizer(about)
    raw = {
        tensor.name: torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
        for tensor in reader.tensors
    }
    heads, key_heads = about["llama.attention.head_count"], about["llama.attention.head_count_kv"]
    parts = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    }  # fmt: skip
    names = {"embed_tokens.weight": raw.pop("token_embd.weight"), "norm.weight": raw.pop("output_norm.weight")}
    for name, weight in raw.items():
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            weight = _half_split(weight, heads if part == "attn_q" else key_heads)
        names[f"layers.{layer}.{parts[part]}.weight"] = weight
    config = {
        "hidden_size": about["llama.embedding_length"],
        "num_hidden_layers": about["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "intermediate_size": about["llama.feed_forward_length"],
        "rope_theta": about.get("llama.rope.freq_base", 10_000.0),
        "rms_norm_eps": about["llama.attention.layer_norm_rms_epsilon"],
    }
    return from_llama(names, config, tokenizer)


def _half_split(weight: Tensor, heads: int) -> Tensor:
    """GGUF stores rotary pairs side by side; ours lie half a head apart."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def gguf_tokenizer(about: dict[str, Any]) -> Tokenizer:
    """The byte-level BPE inside a GGUF file."""
    kind = about.get("tokenizer.ggml.pre", "default")
    if about.get("tokenizer.ggml.model") != "gpt2" or kind not in ("smollm", "gpt-2", "default"):
        raise ValueError(f"the tokenizer '{about.get('tokenizer.ggml.model')}/{kind}' is not known; use a Llama folder")
    vocab = {token: row for row, token in enumerate(about["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in about["tokenizer.ggml.merges"]]
    encoder = byte_level(models.BPE(vocab, merges))
    if kind == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        encoder.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return Tokenizer(encoder)


def pruned(
    config: DenoiserConfig, trunk: dict[str, Tensor], tokenizer: Tokenizer, keep: Path, least: int
) -> tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]:
    """The same model with the vocabulary cut down to what a packed corpus uses; embedding rows follow."""
    counts = np.load(Corpus(keep).folder / "counts.npy")
    smaller, old = prune(tokenizer, counts.astype(np.int64), least)
    new = smaller.vocabulary
    # All rows after the ordinary tokens are alike but for [mask], the first of them.
    special = tokenizer.vocabulary.base + np.minimum(np.arange(new.rows - new.base), 1)
    rows = torch.from_numpy(np.concatenate([old, special]))
    per_token = [name for name, weight in trunk.items() if len(weight) == config.vocabulary.rows]
    trunk = trunk | {name: trunk[name][rows] for name in per_token}
    smaller_trunk = dataclasses.replace(config.trunk, vocabulary=new.rows)
    return dataclasses.replace(config, vocabulary=new, trunk=smaller_trunk), trunk, smaller
