"""Converts SEDD and MDLM checkpoints, by the weight names of the public ones (any prefix stripped)."""

import torch
from torch import Tensor

from ddot.core.absorbing import CleanToken, ScoreEntropy
from ddot.core.records import Vocabulary
from ddot.data.tokenizer import Tokenizer
from ddot.network.convert.weights import Converted, take
from ddot.network.denoiser import DenoiserConfig
from ddot.network.dit import DiTConfig

_NEW_LOGIT = -10.0  # bias of new rows relative to the mean: e^-10 of a token's mean probability


def from_dit(names: dict[str, Tensor], tokenizer: Tokenizer, normalised: bool) -> Converted:
    """Convert SEDD (scores) or MDLM (`normalised`)."""
    names = {name: w.float() for name, w in names.items() if not name.startswith(("rotary_emb.", "noise."))}
    embedding = take(names, "vocab_embed.embedding")
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
    head, bias = (
        take(names, f"output_layer.linear.{name}", rows, *more) for name, more in (("weight", (width,)), ("bias", ()))
    )
    names["vocab_embed.embedding"] = torch.cat([embedding, embedding[:-1].mean(0).expand(new, -1)])
    names["output_layer.linear.weight"] = torch.cat([head, head[:-1].mean(0).expand(new, -1)])
    names["output_layer.linear.bias"] = torch.cat([bias, (bias[:-1].mean() + _NEW_LOGIT).expand(new)])
    # In SEDD's positions clean neighbours are 1 apart, as in our rotary units.
    return DenoiserConfig(trunk, vocabulary, score), names, tokenizer


def _without_time(names: dict[str, Tensor]) -> dict[str, Tensor]:
    """MDLM's noise map made constant in σ: it was trained with σ = 0 only."""
    first, second = ([take(names, f"sigma_map.mlp.{i}.{kind}") for kind in ("weight", "bias")] for i in (0, 2))
    half = first[0].shape[1] // 2
    waves = torch.cat([torch.ones(half), torch.zeros(half)])  # cosines and sines of 0
    output = second[0] @ torch.nn.functional.silu(first[0] @ waves + first[1]) + second[1]
    constant = {"0.weight": first[0], "0.bias": first[1], "2.weight": torch.zeros_like(second[0]), "2.bias": output}
    return {f"sigma_map.mlp.{name}": weight for name, weight in constant.items()}
