"""Learned counts (FlexMDM) and expand/delete (DreamOn): what is asked and answered, the loss by hand, an exact network
that knows one text, and what sampling may never do."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from ddot.core.absorbing import CleanToken
from ddot.core.codes import NOT_PROMPT
from ddot.core.gap_lengths import CLASSES, length_class
from ddot.core.gaps import gap_hints, open_gaps
from ddot.core.records import Example, Vocabulary
from ddot.core.rng import row_keys, spread_times
from ddot.methods.expand_delete import ExpandDelete
from ddot.methods.flexible import Flexible, thinned
from ddot.methods.method import Method
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

V = Vocabulary(30)
L = 10
METHODS = [Flexible(), ExpandDelete()]
METHODS_NAMED = pytest.mark.parametrize("method", METHODS, ids=["learned counts", "expand and delete"])
TOLD = pytest.mark.parametrize("told", [False, True], ids=["free", "located"])


def examples(count=12, seed=0, told=False):
    """Texts of 0 to L different tokens, some of them given; the last one full and all given."""
    rng = np.random.default_rng(seed)
    for n in [*rng.integers(0, L + 1, count - 1).tolist(), L]:
        is_prompt = rng.random(n) < rng.choice([0.1, 0.6]) if n < L else np.ones(L, bool)
        hint = gap_hints(is_prompt, open_gaps(is_prompt)) if told else None
        yield Example(rng.permutation(V.base)[:n], is_prompt, hint)


def network(seed=0):
    torch.manual_seed(seed)
    trunk = LlamaConfig(width=16, blocks=2, heads=2, key_heads=1, inner_width=24, vocabulary=V.rows)
    net = Denoiser(DenoiserConfig(trunk, V, CleanToken(elbo=False), time=True, surroundings=True, gap_lengths=True))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return net.eval()


def batch(method, texts, t=None):
    t = spread_times(1, len(texts)) if t is None else np.full(len(texts), t, np.float32)
    return method.prepare(texts, L, t, row_keys(2, len(texts)), V)


def sampled(method, net, prompts, steps=4):
    with torch.no_grad():
        return list(method.sample(net, prompts, L, steps, row_keys(4, len(prompts))))


@METHODS_NAMED
def test_they_are_methods_that_workers_can_be_sent(method):
    assert isinstance(method, Method)
    assert pickle.loads(pickle.dumps(method)) == method


@TOLD
def test_counts_and_tokens_of_thinned_texts(told):
    texts = list(examples(60, told=told))
    state, answer, asked, absent = thinned(batch(Flexible(), texts), V)
    for row, example in enumerate(texts):
        tokens = example.tokens.tolist()
        seen = [int(token) for token in answer[row] if token != V.pad]
        assert seen.pop(0) == V.sep
        places = [tokens.index(token) for token in seen]
        assert places == sorted(places)
        assert set(np.flatnonzero(example.is_prompt)) <= set(places)
        for slot, (left, right) in enumerate(pairwise([-1, *places, len(tokens)])):
            assert int(absent[row, slot]) == right - left - 1
            beside = [bool(example.is_prompt[i]) for i in (left, right) if 0 <= i < len(tokens)]
            assert bool(asked[row, slot]) == (not told or right - left > 1 or not beside or not all(beside))
        masked = {int(token) for token in answer[row][state.x[row] == V.mask]}
        assert masked <= set(example.tokens[~example.is_prompt].tolist())


def test_how_often_a_token_is_absent_or_masked():
    texts = [Example(np.arange(9), np.zeros(9, bool))] * 900
    for t in (0.2, 0.7):
        state, _, _, absent = thinned(batch(Flexible(), texts, t), V)
        gone, masked = int(absent.sum()), int((state.x == V.mask).sum())
        assert binomtest(gone, 8100, t).pvalue > 1e-3
        assert masked / (8100 - gone) == pytest.approx(0.5, abs=0.03)  # a uniform chance for each row


@TOLD
def test_masks_share_what_is_missing_evenly(told):
    texts = list(examples(600, told=told))
    slots = batch(ExpandDelete(), texts)
    several = 0
    for row, example in enumerate(texts):
        tokens, text = slots.x_0[row].tolist(), example.tokens.tolist()
        masked = (slots.u[row] < 1).tolist()
        used = max((place + 1 for place, m in enumerate(masked) if m or tokens[place] != V.pad), default=0)
        ends = [place for place in range(used) if not masked[place]]
        places = [-1, *(text.index(tokens[place]) for place in ends), len(text)]
        assert places == sorted(places)
        assert set(np.flatnonzero(example.is_prompt)) <= set(places)
        for (left, right), (first, last) in zip(pairwise(places), pairwise([-1, *ends, used]), strict=True):
            n, m = right - left - 1, last - first - 1
            sizes = [n // m + (j < n % m) for j in range(m)]
            begins = np.cumsum([left + 1, *sizes])
            wanted = [V.pad if not k else text[b] if k == 1 else V.sep for k, b in zip(sizes, begins, strict=False)]
            assert tokens[first + 1 : last] == wanted
            assert m <= n + 1
            assert m > 0 or n == 0
            several += n > m > 1
            if told and n == 0 and all(0 <= i < len(text) and example.is_prompt[i] for i in (left, right)):
                assert m == 0  # told closed
    assert several > 5
    assert (slots.hint[slots.u < 1] == NOT_PROMPT).all()


@METHODS_NAMED
def test_the_loss_is_cross_entropy(method):
    net, slots = network(), batch(method, list(examples(told=True)))
    losses = method.loss(net, slots, 3.0)
    if isinstance(method, Flexible):
        state, answer, asked, absent = thinned(slots, V)
    else:
        answer, x = slots.x_0, torch.where(slots.u < 1, V.mask, slots.x_0)
        state = method.start([], L, row_keys(0, 0), V)
        state = type(state)(x, slots.z_0, slots.hint, slots.gap_length, torch.zeros_like(slots.t))
    h, _ = net.read(state)
    at = state.x == V.mask
    logits = net.logits(h[at])[:, : V.size].index_fill(1, torch.tensor([V.mask]), -1e9)
    nats = torch.nn.functional.cross_entropy(logits, answer[at], reduction="none")
    torch.testing.assert_close(losses.nats, nats.mean().detach())
    total = nats.sum()
    if isinstance(method, Flexible):
        wanted = length_class(absent[asked])
        total = total + torch.nn.functional.cross_entropy(net.room_head(h[asked]), wanted, reduction="sum")
    torch.testing.assert_close(losses.total, total / slots.u.numel())
    losses.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


class Exact(Denoiser):
    """A network that knows one text of different tokens, and so what every state of it lacks."""

    def __init__(self, text):
        super().__init__(network().config)
        self.text = text.tolist()
        del self.room_head
        self.room_head = lambda h: h[..., V.size :]

    def read(self, state):
        h = torch.full((*state.x.shape, V.size + CLASSES), -20.0)
        for row, x in enumerate(state.x.tolist()):
            places = [slot for slot, token in enumerate(x) if token < V.base]
            bounds = [-1 if V.sep not in x else 0, *places, sum(token != V.pad for token in x)]
            known = [-1, *(self.text.index(x[slot]) for slot in places), len(self.text)]
            for (first, last), (left, right) in zip(pairwise(bounds), pairwise(known), strict=True):
                n, m = right - left - 1, last - first - 1
                for j, slot in enumerate(range(first + 1, last)):
                    if V.sep in x:  # learned counts: the [mask]s are the first of what is missing
                        answer = self.text[left + 1 + j] if j < n else 0
                    else:
                        sizes = [n // m + (i < n % m) for i in range(m)]
                        begin = left + 1 + sum(sizes[:j])
                        answer = V.pad if not sizes[j] else self.text[begin] if sizes[j] == 1 else V.sep
                    h[row, slot, answer] = 20.0
                for slot in range(max(first, 0), last):
                    count = n - m if slot == last - 1 else 0
                    h[row, slot, V.size + int(length_class(torch.tensor(max(0, count))))] = 20.0
        return h, torch.zeros(state.x.shape)

    def logits(self, h):
        return h[..., : V.size]


@METHODS_NAMED
@TOLD
@pytest.mark.parametrize("steps", [6, 16])
def test_an_exact_network_writes_its_text(method, told, steps):
    text = np.random.default_rng(3).permutation(V.base)[: L - 1]
    prompts = []
    for start in range(len(text)):
        for length in range(len(text) - start + 1):
            is_prompt = np.ones(len(text), bool)
            is_prompt[start : start + length] = False
            prompts.append(Example(text, is_prompt, gap_hints(is_prompt, open_gaps(is_prompt)) if told else None))
    last = sampled(method, Exact(text), prompts, steps)[-1]
    assert {tuple(found.tolist()) for found in method.texts(last, V)} == {tuple(text.tolist())}


@METHODS_NAMED
@TOLD
def test_the_prompt_is_kept_in_order_for_any_weights(method, told):
    for seed in range(4):
        prompts = list(examples(20, seed, told))
        seen = sampled(method, network(seed), prompts, steps=5)
        assert [float(state.t[0]) for state in seen] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2, 0])
        assert (seen[-1].x != V.mask).all()
        for found, example in zip(method.texts(seen[-1], V), prompts, strict=True):
            assert len(found) <= L
            assert (found < V.base).all()
            rest = iter(found.tolist())
            assert all(token in rest for token in example.tokens[example.is_prompt].tolist())


class Expanding(Denoiser):
    """A network that wants to expand everywhere, and otherwise writes 3."""

    def logits(self, h):
        wants = torch.zeros(len(h), V.size)
        wants[:, 3], wants[:, V.sep] = 5.0, 20.0
        return wants


def test_expansion_doubles_until_the_text_is_full_and_ends_in_words():
    seen = sampled(ExpandDelete(), Expanding(network().config), [Example(np.array([5]), np.array([True]))], steps=5)
    assert [int((state.x != V.pad).sum()) for state in seen] == [3, 5, 9, L, L, L]
    assert sorted(ExpandDelete().texts(seen[-1], V)[0].tolist()) == [*[3] * (L - 1), 5]
    assert (seen[-2].x == V.mask).sum() == L - 1


@METHODS_NAMED
def test_closed_gaps_stay_closed(method):
    is_prompt = np.array([True, True, False, True, True])
    example = Example(np.array([7, 8, 0, 9, 6]), is_prompt, gap_hints(is_prompt, open_gaps(is_prompt)))
    for seed in range(4):
        (found,) = method.texts(sampled(method, network(seed), [example])[-1], V)
        assert found.tolist()[:2] == [7, 8]
        assert found.tolist()[-2:] == [9, 6]


@METHODS_NAMED
def test_a_row_is_the_same_in_any_batch_and_only_its_prompt_is_read(method):
    net, prompts = network(), list(examples())
    whole = method.texts(sampled(method, net, prompts)[-1], V)
    for row, p in enumerate(prompts):
        bare = Example(p.tokens[p.is_prompt], p.is_prompt[p.is_prompt])
        (alone,) = method.texts(sampled(method, net, [bare])[-1], V)
        assert alone.tolist() == whole[row].tolist()


@METHODS_NAMED
def test_mistakes(method):
    long = [Example(np.zeros(L + 1, np.int64), np.ones(L + 1, bool))]
    for do in (lambda: batch(method, long), lambda: sampled(method, network(), long)):
        with pytest.raises(ValueError, match=f"does not fit into L = {L}"):
            do()
    with pytest.raises(ValueError, match="steps is 0"):
        sampled(method, network(), list(examples()), steps=0)
