"""Converts Llama-family GGUF files: dequantises weights, maps names to Hugging Face's, reads the tokenizer."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import models, pre_tokenizers

from ddot.data.tokenizer import Tokenizer, byte_level
from ddot.network.convert.llama import from_llama, llama_config
from ddot.network.convert.weights import Converted
from ddot.version import install_command

_GGUF_PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
_GGUF_WHOLE = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}


def from_gguf(file: Path) -> Converted:
    try:
        import gguf
    except ImportError:
        raise ValueError(f"reading GGUF needs the extra `gguf`: {install_command('gguf')}") from None
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
