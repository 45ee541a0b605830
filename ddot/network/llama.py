"""A Llama-family transformer (such as SmolLM2), bidirectional unless configured otherwise.

RMSNorm, grouped-query attention, SwiGLU, tied embeddings. Projections with the same input are stored as one matrix:
q, k, v in `attn_qkv`, gate and up in `mlp_in`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ddot.network.trunk import Angles, Attention, Hidden, Reading, both_ways, left_to_right, rotary, rotate


@dataclass(frozen=True)
class LlamaConfig:
    width: int
    blocks: int
    heads: int
    key_heads: int
    inner_width: int
    vocabulary: int
    rotary_base: float = 100_000.0
    norm_eps: float = 1e-5
    causal: bool = False  # as the base language model

    @classmethod
    def smollm2_135m(cls, vocabulary: int) -> "LlamaConfig":
        return cls(width=576, blocks=30, heads=9, key_heads=3, inner_width=1536, vocabulary=vocabulary)

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class RMSNorm(nn.RMSNorm):
    """RMSNorm in float32, whatever the precision of the input."""

    def forward(self, h: Hidden) -> Hidden:
        return super().forward(h.float()).to(h.dtype)


class Block(nn.Module):
    def __init__(self, config: LlamaConfig):
        super().__init__()
        d, inner = config.width, config.inner_width
        self.config = config
        self.norm1 = RMSNorm(d, config.norm_eps)
        self.attn_qkv = nn.Linear(d, (config.heads + 2 * config.key_heads) * config.head_width, bias=False)
        self.attn_out = nn.Linear(config.heads * config.head_width, d, bias=False)
        self.norm2 = RMSNorm(d, config.norm_eps)
        self.mlp_in = nn.Linear(d, 2 * inner, bias=False)
        self.mlp_out = nn.Linear(inner, d, bias=False)

    def forward(self, h: Hidden, cos: Angles, sin: Angles, attention: Attention) -> Hidden:
        c = self.config
        qkv = self.attn_qkv(self.norm1(h)).unflatten(-1, (-1, c.head_width))
        qk, v = qkv.split([c.heads + c.key_heads, c.key_heads], 2)
        q, k = rotate(qk, cos, sin).split([c.heads, c.key_heads], 2)
        h = h + self.attn_out(attention(q, k, v))
        gate, up = self.mlp_in(self.norm2(h)).chunk(2, -1)
        return h + self.mlp_out(nn.functional.silu(gate) * up)


class Table(nn.Module):
    """Token embeddings and, with the same rows, logits."""

    def __init__(self, rows: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))

    def forward(self, x: Int[Tensor, "B L"]) -> Hidden:
        return nn.functional.embedding(x, self.weight)

    def logits(self, hidden: Float[Tensor, "M d"]) -> Float[Tensor, "M V"]:
        return nn.functional.linear(hidden, self.weight)


class Llama(nn.Module):
    """embed → blocks → norm; logits from the embedding matrix. σ is unused: the denoiser adds a time embedding."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.embed_tokens = Table(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.norm = RMSNorm(config.width, config.norm_eps)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Depth-scaled output projections, as usual for pre-norm transformers.
                residual = name.endswith(("attn_out.weight", "mlp_out.weight"))
                nn.init.normal_(parameter, std=0.02 / ((2 * config.blocks) ** 0.5 if residual else 1))

    def embed(self, x: Int[Tensor, "B L"]) -> Hidden:
        return self.embed_tokens(x)

    def hidden(
        self, h: Hidden, positions: Float[Tensor, "B L"], sigma: Float[Tensor, "B"], reading: Reading | None = None
    ) -> Hidden:
        reading = reading or (left_to_right if self.config.causal else both_ways)
        cos, sin = (angles.to(h.dtype) for angles in rotary(positions, self.config.head_width, self.config.rotary_base))
        for number, block in enumerate(self.blocks):
            h = block(h, cos, sin, reading(number))
        return self.norm(h)

    def logits(self, hidden: Float[Tensor, "M d"]) -> Float[Tensor, "M V"]:
        return self.embed_tokens.logits(hidden)
