"""The trunks and the denoiser: public sizes and names, a plain SEDD as oracle, the symmetries of positions."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from ddot.core import gap_lengths
from ddot.core.absorbing import CleanToken, ScoreEntropy
from ddot.core.codes import HINTS
from ddot.core.records import State, Vocabulary
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiT, DiTConfig
from ddot.network.llama import Llama, LlamaConfig
from ddot.network.trunk import attend_grouped, grouped_mask

V = Vocabulary(20)


def dit_config(**changes):
    trunk = DiTConfig(width=32, blocks=2, heads=4, vocabulary=V.rows, condition_width=16)
    return dataclasses.replace(DenoiserConfig(trunk=trunk, vocabulary=V, score=ScoreEntropy(V.base + 1)), **changes)


def llama_config(**changes):
    trunk = LlamaConfig(width=32, blocks=2, heads=4, key_heads=2, inner_width=48, vocabulary=V.rows)
    full = DenoiserConfig(trunk=trunk, vocabulary=V, score=CleanToken(), time=True, surroundings=True, gap_lengths=True)
    return dataclasses.replace(full, **changes)


def awake(config):
    """A network whose every parameter is away from zero, so that nothing is invisible."""
    model = Denoiser(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def random_state(B=3, L=10):
    hint = torch.randint(0, HINTS, (B, L))
    return State(
        x=torch.where(hint == 0, V.mask, torch.randint(0, V.base, (B, L))),
        z=torch.rand(B, L) * 2 - 1,
        hint=hint,
        gap_length=torch.where(hint == 0, -1, torch.randint(-1, 6, (B, L))),
        t=torch.rand(B),
    )


@pytest.mark.parametrize(("config", "total"), [(DiTConfig.small, 169_627_218), (DiTConfig.medium, 424_477_010)])
def test_dit_has_the_size_and_names_of_the_public_checkpoints(config, total):
    with torch.device("meta"):
        model = DiT(config(50258))
    assert sum(p.numel() for p in model.parameters()) == total
    names = set(dict(model.named_parameters()))
    assert {
        "vocab_embed.embedding", "sigma_map.mlp.0.weight", "sigma_map.mlp.2.bias", "blocks.0.norm1.weight",
        "blocks.0.attn_qkv.weight", "blocks.0.attn_out.weight", "blocks.0.norm2.weight", "blocks.0.mlp.0.bias",
        "blocks.0.mlp.2.weight", "blocks.0.adaLN_modulation.weight", "output_layer.norm_final.weight",
        "output_layer.linear.weight", "output_layer.adaLN_modulation.bias",
    } <= names  # fmt: skip


def test_smollm2_has_its_public_size():
    with torch.device("meta"):
        model = Llama(LlamaConfig.smollm2_135m(49152))
    assert sum(p.numel() for p in model.parameters()) == 134_515_008


def plain_sedd(p, x, sigma, heads):
    """SEDD's forward at positions 0, 1, 2, …, written out from its description, over a dict of parameters."""

    def norm(h, w):
        h = h - h.mean(-1, keepdim=True)
        return h / torch.sqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5) * w

    def linear(h, name):
        return h @ p[name + ".weight"].T + p.get(name + ".bias", torch.zeros(()))

    def turn(h):  # (B, S, H, D)
        D = h.shape[-1]
        angle = torch.arange(h.shape[1])[:, None] / 10_000 ** (torch.arange(0, D, 2) / D)
        cos, sin = torch.cat([angle.cos()] * 2, -1)[:, None], torch.cat([angle.sin()] * 2, -1)[:, None]
        return h * cos + torch.cat([-h[..., D // 2 :], h[..., : D // 2]], -1) * sin

    freqs = torch.exp(-torch.log(torch.tensor(10_000.0)) * torch.arange(128) / 128)
    args = sigma[:, None] * freqs
    c = linear(torch.cat([args.cos(), args.sin()], -1), "sigma_map.mlp.0")
    c = F.silu(linear(F.silu(c), "sigma_map.mlp.2"))
    h = p["vocab_embed.embedding"][x]
    B, S, d = h.shape
    block = 0
    while f"blocks.{block}.norm1.weight" in p:
        name = f"blocks.{block}."
        m = linear(c, name + "adaLN_modulation")[:, None].chunk(6, -1)
        qkv = linear(norm(h, p[name + "norm1.weight"]) * (1 + m[1]) + m[0], name + "attn_qkv")
        q, k, v = qkv.reshape(B, S, 3, heads, d // heads).unbind(2)
        weights = torch.softmax(torch.einsum("bshd,bthd->bhst", turn(q), turn(k)) / (d // heads) ** 0.5, -1)
        out = torch.einsum("bhst,bthd->bshd", weights, v).reshape(B, S, d)
        h = h + m[2] * linear(out, name + "attn_out")
        inner = linear(norm(h, p[name + "norm2.weight"]) * (1 + m[4]) + m[3], name + "mlp.0")
        h = h + m[5] * linear(F.gelu(inner, approximate="tanh"), name + "mlp.2")
        block += 1
    shift, scale = linear(c, "output_layer.adaLN_modulation")[:, None].chunk(2, -1)
    logits = linear(norm(h, p["output_layer.norm_final.weight"]) * (1 + scale) + shift, "output_layer.linear")
    log_score = logits - torch.log(torch.expm1(sigma))[:, None, None] - torch.log(torch.tensor(float(V.base)))
    return log_score.scatter(-1, x[..., None], 0.0)


def test_retrofit_reproduces_plain_sedd_at_integer_positions():
    model = Denoiser(dit_config())
    with torch.no_grad():
        for parameter in model.trunk.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    state = random_state(L=10)
    state = dataclasses.replace(state, z=(torch.arange(10.0) * 2 / 10).expand(3, 10))  # L/2 units each
    prediction = model(state)
    expected = plain_sedd(dict(model.trunk.named_parameters()), state.x, model.noise.sigma(state.t), heads=4)
    used = prediction.log_score[:, : V.size]
    torch.testing.assert_close(used, expected[state.x == V.mask][:, : V.size], rtol=1e-4, atol=1e-5)
    assert torch.isneginf(prediction.log_score[:, V.size :]).all()  # rows that only round up are never drawn
    assert (prediction.velocity == 0).all()


@pytest.mark.parametrize("config", [dit_config(), llama_config(), llama_config(predict_clean=True)])
def test_symmetries(config):
    model, state = awake(config), random_state()
    prediction = model(state)
    order = torch.randperm(10)
    mixed = State(**{f: getattr(state, f)[:, order] for f in ("x", "z", "hint", "gap_length")}, t=state.t)
    permuted = model(mixed)
    torch.testing.assert_close(permuted.velocity, prediction.velocity[:, order], rtol=1e-4, atol=1e-5)
    full = torch.zeros(3, 10, V.rows).masked_scatter(prediction.at[..., None], prediction.log_score)
    torch.testing.assert_close(permuted.log_score, full[:, order][permuted.at], rtol=1e-4, atol=1e-5)

    shifted = model(dataclasses.replace(state, z=state.z + 0.37))
    torch.testing.assert_close(shifted.velocity, prediction.velocity, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(shifted.log_score, prediction.log_score, rtol=1e-4, atol=1e-4)

    one = model(State(**{f: getattr(state, f)[1:2] for f in ("x", "z", "hint", "gap_length", "t")}))
    torch.testing.assert_close(one.velocity, prediction.velocity[1:2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", [dit_config(), llama_config()])
def test_everything_told_matters_and_only_that(config):
    model, state = awake(config), random_state()
    base = model(state).velocity
    for name, value in (("hint", (state.hint + 1) % HINTS), ("z", state.z * 0.5), ("t", state.t * 0.5)):
        assert not torch.allclose(model(dataclasses.replace(state, **{name: value})).velocity, base)
    if config.gap_lengths:
        assert not torch.allclose(model(dataclasses.replace(state, gap_length=state.gap_length + 1)).velocity, base)


def test_logits_at_chosen_slots_only():
    model, state = awake(llama_config()), random_state()
    everywhere = model(state, at=torch.ones_like(state.x, dtype=torch.bool))
    chosen = torch.rand(3, 10) < 0.3
    some = model(state, at=chosen)
    assert some.log_score.shape == (int(chosen.sum()), V.rows)
    torch.testing.assert_close(some.log_score, everywhere.log_score[chosen.flatten()], rtol=1e-4, atol=1e-5)


def test_additions_start_at_zero():
    model = Denoiser(llama_config())
    state = random_state()
    h, velocity = model.read(state)
    bare = model.trunk.hidden(model.trunk.embed(state.x), state.z * 5, state.t)
    torch.testing.assert_close(h, bare)
    assert (velocity == 0).all()


def test_causal_llama_does_not_look_ahead():
    trunk = Llama(dataclasses.replace(llama_config().trunk, causal=True))
    x = torch.randint(0, 20, (1, 8))
    changed = torch.cat([x[:, :5], (x[:, 5:] + 1) % 20], 1)
    positions = torch.arange(8.0)[None]
    a, b = (trunk.hidden(trunk.embed(y), positions, torch.ones(1)) for y in (x, changed))
    torch.testing.assert_close(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 5:], b[:, 5:])


def test_length_classes_cover_all_lengths():
    lengths = torch.arange(0, 400)
    classes = gap_lengths.length_class(lengths)
    assert classes[:16].tolist() == list(range(16))
    assert (torch.diff(classes) >= 0).all()
    assert classes[-1] == gap_lengths.CLASSES - 1
    middle = gap_lengths.class_lengths()
    assert ((middle[classes[:128]] - lengths[:128]).abs() <= 4).all()
    assert len(middle) == gap_lengths.CLASSES


def test_grouped_attention_is_that_of_repeated_keys():
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, slots, heads, 8, generator=generator) for slots, heads in ((3, 6), (7, 2), (7, 2)))
    seen = torch.rand(2, 3, 7, generator=generator) < 0.6
    seen[..., 0] = True
    scores = torch.einsum("blhd,bnhd->bhln", q, k.repeat_interleave(3, 2)) / 8**0.5
    weights = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)
    wanted = torch.einsum("bhln,bnhd->blhd", weights, v.repeat_interleave(3, 2)).flatten(2)
    torch.testing.assert_close(attend_grouped(q, k, v, grouped_mask(seen, q, k)), wanted)
