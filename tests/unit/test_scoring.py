"""Scores against the definition: every filled token judged with each second one hidden, and every gap's length."""

import math

import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken
from ddot.core.gap_lengths import CLASSES
from ddot.core.records import BOTH, GLUED, Example, Prompt, State, Vocabulary
from ddot.infill.scoring import Row, gap_chances, token_chances
from ddot.infill.view import View
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

V = Vocabulary(30)


def network():
    trunk = LlamaConfig(width=16, blocks=2, heads=2, key_heads=1, inner_width=24, vocabulary=V.rows)
    config = DenoiserConfig(trunk, V, CleanToken(elbo=False), time=True, surroundings=True, gap_lengths=True)
    net = Denoiser(config)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return net.eval()


def text(tokens, gap, fill):
    """A prompt with one gap after token number `gap`, and what was filled in there."""
    n = len(tokens)
    lengths = np.where(np.arange(n) == gap, len(fill), 0)
    hint = np.where(lengths > 0, BOTH, GLUED)
    is_open = np.append(False, lengths > 0)
    prompt = Prompt(Example(np.array(tokens), np.ones(n, bool), hint, lengths), is_open)
    return Row(prompt, gap + 1 + np.arange(len(fill)), np.array(fill, np.int64))


def by_hand(net, row, L):
    """The log-chances of the filled tokens, even places first, from one look at each half."""
    example, fill = row.prompt.example, row.tokens.tolist()
    gap = int(example.gap_length.argmax()) if fill else len(example.tokens) - 1
    told = [(t, h, g) for t, h, g in zip(example.tokens, example.hint, example.gap_length, strict=True)]
    slots = told[: gap + 1] + [(token, 0, -1) for token in fill] + told[gap + 1 :]
    slots += [(V.pad, 0, -1)] * (L - len(slots))
    n = len(example.tokens) + len(fill)
    z = [n / L * (2 * i - (n - 1)) / max(1, n - 1) for i in range(n)] + [n / L + 2 / L * k for k in range(1, L - n + 1)]
    found = []
    for parity in (0, 1):
        hidden = row.slots[parity::2].tolist()
        if not hidden:
            continue
        x = torch.tensor([[V.mask if i in hidden else slot[0] for i, slot in enumerate(slots)]])
        hint, lengths = (torch.tensor([[slot[k] for slot in slots]]) for k in (1, 2))
        state = State(x, torch.tensor([z]), hint, lengths, torch.tensor([len(hidden) / len(fill)]))
        logits = net.logits(net.read(state)[0][0, hidden])[:, : V.size]
        logits[:, V.mask] = -torch.inf
        log_p = torch.log_softmax(logits, -1)
        found += [log_p[i, slots[slot][0]].item() for i, slot in enumerate(hidden)]
    return found


TEXTS = [text([1, 2, 3, 4], 1, [7, 8, 9]), text([5, 6], 0, [10]), text([1, 2], 0, [3, 3, 4, 4, 5])]


@torch.no_grad()
def test_every_token_is_judged_with_each_second_one_hidden():
    net, L = network(), 9
    together = token_chances(net, TEXTS, L)
    for row, found in zip(TEXTS, together, strict=True):
        assert found == pytest.approx(by_hand(net, row, L), rel=1e-3, abs=1e-4)
        assert token_chances(net, [row], L, rows=3)[0] == pytest.approx(found, rel=1e-3, abs=1e-4)
    assert len({tuple(found) for found in together}) == 3


@torch.no_grad()
def test_nothing_filled_has_no_chances():
    empty = text([1, 2, 3], 0, [])
    assert token_chances(network(), [empty], 4) == [[]]
    both = token_chances(network(), [empty, TEXTS[1]], 4)
    assert [len(found) for found in both] == [0, 1]


def test_the_length_of_every_gap_that_has_blanks_is_judged_once():
    chances = torch.softmax(torch.randn(4, CLASSES), -1)
    chances[2, 6] = 0.0
    view = View(TEXTS[0].prompt, ("",) * 4, (0, 2, 2), (0, 0, 0))  # two blanks share the gap after token 2
    found = gap_chances(view, chances, [np.array([1]), np.array([1, 2]), np.array([3, 4, 5])])
    assert found == pytest.approx([math.log(chances[0, 1]), math.log(chances[2, 5])], rel=1e-5)
    impossible = gap_chances(view, chances, [np.array([1]), np.array([1, 2, 3]), np.array([3, 4, 5])])
    assert math.isfinite(impossible[1])
    assert impossible[1] < -20
