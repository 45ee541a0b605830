"""Converts Llama-family checkpoints, by Hugging Face's weight names (any prefix stripped) and config.json."""

from typing import Any

import torch
from torch import Tensor

from ddot.data.tokenizer import Tokenizer
from ddot.network.convert.weights import Converted, take
from ddot.network.denoiser import DenoiserConfig
from ddot.network.llama import LlamaConfig

_SPARE = 1024  # unused rows allowed beyond the tokenizer's


def from_llama(names: dict[str, Tensor], about: dict[str, Any], tokenizer: Tokenizer) -> Converted:
    """Convert weights with Hugging Face's names, removing them from `names`."""
    trunk = llama_config(about, tokenizer.vocabulary.rows)
    width, inner, D = trunk.width, trunk.inner_width, trunk.head_width
    embedding = take(names, "embed_tokens.weight")
    head = names.pop("lm_head.weight", None)
    tied = about.get("tie_word_embeddings", False)
    if not tied and (head is None or not torch.equal(head.float(), embedding)):
        raise ValueError("this checkpoint has a separate output matrix; only tied embeddings are supported")
    weights = {"embed_tokens.weight": _with_new_rows(embedding, width, tokenizer)}
    del embedding, head
    for i in range(trunk.blocks):
        old, new = f"layers.{i}.", f"blocks.{i}."
        heads = {"q": trunk.heads, "k": trunk.key_heads, "v": trunk.key_heads}
        qkv = [take(names, f"{old}self_attn.{part}_proj.weight", n * D, width) for part, n in heads.items()]
        weights[new + "attn_qkv.weight"] = torch.cat(qkv)
        weights[new + "attn_out.weight"] = take(names, old + "self_attn.o_proj.weight", width, trunk.heads * D)
        both = [take(names, f"{old}mlp.{part}_proj.weight", inner, width) for part in ("gate", "up")]
        weights[new + "mlp_in.weight"] = torch.cat(both)
        weights[new + "mlp_out.weight"] = take(names, old + "mlp.down_proj.weight", width, inner)
        weights[new + "norm1.weight"] = take(names, old + "input_layernorm.weight", width)
        weights[new + "norm2.weight"] = take(names, old + "post_attention_layernorm.weight", width)
    weights["norm.weight"] = take(names, "norm.weight", width)
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
    for name, value, wanted in (
        ("model_type", about.get("model_type", "llama"), "llama"),
        ("hidden_act", about.get("hidden_act", "silu"), "silu"),
        ("rope_scaling", scaling.get("rope_type", scaling.get("type", "default")), "default"),
        ("head_dim", about.get("head_dim") or width // heads, width / heads),
        ("heads for each key head", heads / key_heads, heads // key_heads),
    ):
        if value != wanted:
            raise ValueError(f"the model has {name} {value}; only {wanted} is supported")
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
