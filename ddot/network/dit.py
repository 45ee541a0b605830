"""SEDD's diffusion transformer, with parameters named as in its public checkpoints."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ddot.network.trunk import Angles, Attention, Hidden, Reading, both_ways, rotary, rotate


@dataclass(frozen=True)
class DiTConfig:
    width: int
    blocks: int
    heads: int
    vocabulary: int
    condition_width: int = 128
    rotary_base: float = 10_000.0

    @classmethod
    def small(cls, vocabulary: int) -> "DiTConfig":
        return cls(width=768, blocks=12, heads=12, vocabulary=vocabulary)

    @classmethod
    def medium(cls, vocabulary: int) -> "DiTConfig":
        return cls(width=1024, blocks=24, heads=16, vocabulary=vocabulary)


class Embedding(nn.Module):
    def __init__(self, rows: int, width: int):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(rows, width))
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))


class Scale(nn.LayerNorm):
    """Layer norm in float32 with a weight and no bias."""

    def __init__(self, width: int):
        super().__init__(width, eps=1e-5, bias=False)

    def forward(self, h: Hidden) -> Hidden:
        return super().forward(h.float())


class NoiseMap(nn.Module):
    """σ → conditioning vector: 128 cosines and 128 sines through a small MLP."""

    def __init__(self, width: int, frequencies: int = 128):
        super().__init__()
        self.frequencies = frequencies
        self.mlp = nn.Sequential(nn.Linear(2 * frequencies, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, sigma: Float[Tensor, "B"]) -> Float[Tensor, "B c"]:
        exponent = torch.arange(self.frequencies, dtype=torch.float32, device=sigma.device) / self.frequencies
        angles = sigma.float()[:, None] * 10_000.0**-exponent
        return self.mlp(torch.cat([angles.cos(), angles.sin()], -1))


def modulate(h: Hidden, shift: Float[Tensor, "B 1 d"], scale: Float[Tensor, "B 1 d"]) -> Tensor:
    return h * (1 + scale) + shift


class Block(nn.Module):
    def __init__(self, config: DiTConfig):
        super().__init__()
        d = config.width
        self.heads = config.heads
        self.norm1 = Scale(d)
        self.attn_qkv = nn.Linear(d, 3 * d, bias=False)
        self.attn_out = nn.Linear(d, d, bias=False)
        self.norm2 = Scale(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))
        self.adaLN_modulation = nn.Linear(config.condition_width, 6 * d)
        nn.init.zeros_(self.adaLN_modulation.weight)
        nn.init.zeros_(self.adaLN_modulation.bias)

    def forward(
        self, h: Hidden, condition: Float[Tensor, "B c"], cos: Angles, sin: Angles, attention: Attention
    ) -> Hidden:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.adaLN_modulation(condition)[:, None].chunk(6, -1)
        qkv = self.attn_qkv(modulate(self.norm1(h), shift_a, scale_a)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.unbind(2)
        h = h + gate_a * self.attn_out(attention(rotate(q, cos, sin), rotate(k, cos, sin), v))
        return h + gate_m * self.mlp(modulate(self.norm2(h), shift_m, scale_m))


class Output(nn.Module):
    def __init__(self, config: DiTConfig):
        super().__init__()
        self.norm_final = Scale(config.width)
        self.linear = nn.Linear(config.width, config.vocabulary)
        self.adaLN_modulation = nn.Linear(config.condition_width, 2 * config.width)
        for parameter in (*self.linear.parameters(), *self.adaLN_modulation.parameters()):
            nn.init.zeros_(parameter)


class DiT(nn.Module):
    """embed → blocks → modulated norm; `logits` is the public checkpoints' last linear layer."""

    def __init__(self, config: DiTConfig):
        super().__init__()
        self.config = config
        self.vocab_embed = Embedding(config.vocabulary, config.width)
        self.sigma_map = NoiseMap(config.condition_width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.output_layer = Output(config)

    def embed(self, x: Int[Tensor, "B L"]) -> Hidden:
        return nn.functional.embedding(x, self.vocab_embed.embedding)

    def hidden(
        self, h: Hidden, positions: Float[Tensor, "B L"], sigma: Float[Tensor, "B"], reading: Reading | None = None
    ) -> Hidden:
        reading = reading or both_ways
        condition = nn.functional.silu(self.sigma_map(sigma))
        cos, sin = rotary(positions, self.config.width // self.config.heads, self.config.rotary_base)
        for number, block in enumerate(self.blocks):
            h = block(h, condition, cos, sin, reading(number))
        shift, scale = self.output_layer.adaLN_modulation(condition)[:, None].chunk(2, -1)
        return modulate(self.output_layer.norm_final(h), shift, scale)

    def logits(self, hidden: Float[Tensor, "M d"]) -> Float[Tensor, "M V"]:
        return self.output_layer.linear(hidden)
