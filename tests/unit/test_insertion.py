"""Insertion: which questions are asked and answered, the loss by hand, and what sampling may never do."""

import dataclasses
import pickle
from collections import Counter
from math import exp

import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken
from ddot.core.codes import NOT_PROMPT, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.gaps import gap_hints, missing_after, open_gaps
from ddot.core.records import Example, Vocabulary
from ddot.core.rng import row_keys, spread_times
from ddot.methods.insertion import Insertion, insert, targets
from ddot.methods.method import Method
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

V = Vocabulary(30)
L = 10


def examples(count=12, seed=0, told=False):
    """Texts of 0 to L tokens, some of them given; the last one full and all given."""
    rng = np.random.default_rng(seed)
    for n in [*rng.integers(0, L + 1, count - 1).tolist(), L]:
        is_prompt = rng.random(n) < 0.5 if n < L else np.ones(L, bool)
        hint = gap_hints(is_prompt, open_gaps(is_prompt)) if told else None
        yield Example(rng.integers(0, V.base, n), is_prompt, hint)


def network():
    trunk = LlamaConfig(width=16, blocks=2, heads=2, key_heads=1, inner_width=24, vocabulary=V.rows)
    net = Denoiser(DenoiserConfig(trunk, V, CleanToken(elbo=False), time=True, surroundings=True, gap_lengths=True))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return net.eval()


def batch(texts, method=Insertion(), t=None):
    t = spread_times(1, len(texts)) if t is None else np.full(len(texts), t, np.float32)
    return method.prepare(texts, L, t, row_keys(2, len(texts)), V)


def states(net, prompts, steps=4, method=Insertion()):
    with torch.no_grad():
        return list(method.sample(net, prompts, L, steps, row_keys(4, len(prompts))))


def test_it_is_a_method_that_workers_can_be_sent():
    assert isinstance(Insertion(), Method)
    assert pickle.loads(pickle.dumps(Insertion())) == Insertion()


def asked_of(slots, method=Insertion()):
    return targets(slots, method.spread, V)


@pytest.mark.parametrize("told", [False, True], ids=["free", "located"])
def test_every_gap_is_asked_for_a_missing_token_or_none(told):
    rng = np.random.default_rng(5)
    for example in examples(60, told=told):
        tokens = rng.permutation(V.base)[: len(example.tokens)]  # all different, so that each says where it stands
        state, asked, answer = asked_of(batch([dataclasses.replace(example, tokens=tokens)]))
        said = [int(token) for token in state.x[0] if token != V.pad]
        assert said.pop(0) == V.sep
        places = [tokens.tolist().index(token) for token in said]
        assert places == sorted(places)
        assert set(np.flatnonzero(example.is_prompt)) <= set(places)
        hints = np.full(len(tokens), UNKNOWN) if example.hint is None else example.hint
        wanted = [hints[place] if example.is_prompt[place] else NOT_PROMPT for place in places]
        assert state.hint[0, 1 : len(said) + 1].tolist() == wanted
        for slot, (left, right) in enumerate(zip([-1, *places], [*places, len(tokens)], strict=True)):
            between = tokens[left + 1 : right].tolist()
            # Told of a gap is what stands at the prompt tokens beside it; beside others anything may be missing.
            beside = [bool(example.is_prompt[i]) for i in (left, right) if 0 <= i < len(tokens)]
            closed = told and not between and beside != [] and all(beside)
            assert bool(asked[0, slot]) == (not closed)
            assert int(answer[0, slot]) in (between or [V.pad])
        assert not asked[0, len(said) + 1 :].any()


def test_tokens_lie_one_unit_apart():
    slots = batch(list(examples()))
    state, _, _ = asked_of(slots)
    units = state.z.double() * network().scale(L + 1)
    torch.testing.assert_close(units.diff(), torch.ones(len(units), L).double(), atol=1e-4, rtol=0)
    assert torch.equal(state.z, Insertion().start(list(examples()), L, row_keys(0, 12), V).z)


def test_the_middle_of_a_gap_is_the_answer_as_often_as_its_weight_says():
    for n, spread in ((5, 1.0), (4, 0.7)):
        method, count = Insertion(spread), 6000
        _, asked, answer = asked_of(batch([Example(np.arange(n), np.zeros(n, bool))] * count, t=1.0), method)
        found = Counter(answer[asked].tolist())
        weights = [exp(-abs(place - (n - 1) / 2) / spread) for place in range(n)]
        for place, weight in enumerate(weights):
            assert found[place] / count == pytest.approx(weight / sum(weights), abs=0.03)


def test_the_share_that_is_there_is_one_minus_t():
    texts = [Example(np.arange(9), np.zeros(9, bool))] * 800
    for t in (0.1, 0.5, 0.9):
        state, _, _ = asked_of(batch(texts, t=t))
        assert (state.x < V.base).sum().item() / (9 * 800) == pytest.approx(1 - t, abs=0.03)


def test_the_loss_is_the_mean_cross_entropy_of_the_answers():
    net, slots = network(), batch(list(examples(told=True)))
    losses = Insertion().loss(net, slots, 3.0)
    state, asked, answer = asked_of(slots)
    logits = net.logits(net.read(state)[0][asked])[:, : V.size].index_fill(1, torch.tensor([V.mask]), -1e9)
    nats = torch.nn.functional.cross_entropy(logits, answer[asked], reduction="none")
    torch.testing.assert_close(losses.nats, nats.mean().detach())
    torch.testing.assert_close(losses.total, nats.sum() / slots.u.numel())  # λ weighs nothing
    losses.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_words_go_right_after_their_slots():
    rng = np.random.default_rng(1)
    start = Insertion().start(list(examples()), L, row_keys(0, 12), V)
    there = start.x != V.pad
    for _ in range(20):
        wanted = there & torch.from_numpy(rng.random(there.shape) < 0.3)
        wanted &= wanted.cumsum(-1) <= L + 1 - there.sum(-1, keepdim=True)
        word = torch.from_numpy(rng.integers(0, V.base, there.shape))
        grown = insert(start, wanted, word, V)
        for row in range(len(there)):
            expected = []
            for slot in range(int(there[row].sum())):
                expected.append((int(start.x[row, slot]), int(start.hint[row, slot])))
                if wanted[row, slot]:
                    expected.append((int(word[row, slot]), NOT_PROMPT))
            count = len(expected)
            found = list(zip(grown.x[row, :count].tolist(), grown.hint[row, :count].tolist(), strict=True))
            assert found == expected
            assert (grown.x[row, count:] == V.pad).all()


@pytest.mark.parametrize("told", [False, True], ids=["free", "located"])
def test_the_prompt_is_kept_in_order_for_any_weights(told):
    for seed, doubt in ((0, 0.5), (1, 0.5), (2, 1.0), (3, 1.0)):  # 1.0: every gap always gets a word
        torch.manual_seed(seed)
        method, prompts = Insertion(doubt=doubt), list(examples(20, seed, told))
        seen = states(network(), prompts, method=method)
        assert (seen[0].t == 1).all()
        assert (seen[-1].t == 0).all()
        assert (seen[-1].x != V.mask).all()
        for text, example in zip(method.texts(seen[-1], V), prompts, strict=True):
            assert len(text) <= L
            if doubt == 1 and not told:
                assert len(text) == L
            rest = iter(text.tolist())
            assert all(token in rest for token in example.tokens[example.is_prompt].tolist())


def test_closed_gaps_stay_closed():
    is_prompt = np.array([True, True, False, True, True])
    example = Example(np.where(is_prompt, V.sep, 0), is_prompt, gap_hints(is_prompt, open_gaps(is_prompt)))
    (text,) = Insertion().texts(states(network(), [example], method=Insertion(doubt=1.0))[-1], V)
    assert text.tolist()[:2] == [V.sep] * 2  # no written token is [sep]
    assert text.tolist()[-2:] == [V.sep] * 2
    assert len(text) == L


def test_a_gap_doubles_with_every_look_at_most():
    prompts = [Example(np.array([3]), np.array([True]))]
    seen = states(network(), prompts, steps=8, method=Insertion(doubt=1.0))
    assert [len(Insertion().texts(state, V)[0]) for state in seen] == [1, 3, 7, 10, 10]


def with_lengths(example):
    """The same text, told how many tokens are missing after each given one."""
    return dataclasses.replace(example, gap_length=missing_after(example.is_prompt))


@pytest.mark.parametrize("told", [False, True], ids=["free", "located"])
def test_sampling_shows_the_network_what_training_showed_it(told):
    """Noise, places, and what is told of [sep], of given tokens and of those put in: alike on both sides."""
    texts = [with_lengths(each) if told else each for each in examples(40, told=told)]
    looks = {"training": [asked_of(batch(texts))[0]], "sampling": []}
    net = network()
    read = net.read
    net.read = lambda state, *more: looks["sampling"].append(state) or read(state, *more)
    states(net, texts, method=Insertion(doubt=1.0))
    for seen in looks.values():
        said = set()
        for state in seen:
            assert (state.t == 0).all()
            assert torch.equal(state.z, seen[0].z)
            for row, example in enumerate(texts):
                hints, lengths = (
                    _told(example.hint, example, UNKNOWN),
                    _told(example.gap_length, example, UNKNOWN_LENGTH),
                )
                given = list(zip(example.tokens[example.is_prompt].tolist(), hints, lengths, strict=True))
                columns = (state.x[row], state.hint[row], state.gap_length[row])
                slots = list(zip(*(column.tolist() for column in columns), strict=True))
                assert slots[0] == (V.sep, UNKNOWN, UNKNOWN_LENGTH)
                known = [slot for slot in slots[1:] if slot[1] != NOT_PROMPT]
                assert known == given
                said |= {slot[1:] for slot in slots[1:] if slot[0] < V.base and slot[1] == NOT_PROMPT}
        assert said == {(NOT_PROMPT, UNKNOWN_LENGTH)}
    assert torch.equal(looks["training"][0].z[0], looks["sampling"][0].z[0])


def _told(values, example, unknown):
    return [unknown] * int(example.is_prompt.sum()) if values is None else values[example.is_prompt].tolist()


def gap_chances(net, example):
    """The chances of the answers for the gap before a whole text and after each of its tokens."""
    start = Insertion().start([example], L, row_keys(0, 1), V)
    with torch.no_grad():
        h, _ = net.read(dataclasses.replace(start, t=torch.zeros(1)))
        logits = net.logits(h[0, : len(example.tokens) + 1])[:, : V.size]
    return torch.softmax(logits.index_fill(1, torch.tensor([V.mask, V.sep]), -torch.inf), -1)


def test_where_more_is_wanted_than_fits_the_surest_gaps_are_filled():
    """Nine tokens and one place left: it goes to the gap that is least likely to be complete."""
    net, example = network(), Example(np.arange(L - 1), np.ones(L - 1, bool))
    chances = gap_chances(net, example)
    place = int(chances[:, V.pad].argmin())
    wanted = list(range(L - 1))
    wanted.insert(place, int(chances[place, : V.base].argmax()))
    (text,) = Insertion().texts(states(net, [example], method=Insertion(doubt=1.0))[-1], V)
    assert text.tolist() == wanted


def test_a_token_is_put_in_where_the_chance_that_none_is_missing_is_at_most_the_doubt():
    net, example = network(), Example(np.array([4, 5, 6, 7]), np.ones(4, bool))
    chances = gap_chances(net, example)[:, V.pad]
    for count, doubt in enumerate(chances.sort().values.tolist()):  # of five gaps one more each time
        (text,) = Insertion().texts(states(net, [example], steps=1, method=Insertion(doubt=doubt + 1e-6))[-1], V)
        assert len(text) == 4 + count + 1


def test_a_row_is_the_same_in_any_batch():
    net, prompts = network(), list(examples())
    whole = Insertion().texts(states(net, prompts)[-1], V)
    for row in range(len(prompts)):
        alone = Insertion().texts(states(net, prompts[row : row + 1])[-1], V)
        assert alone[0].tolist() == whole[row].tolist()


def test_sampling_reads_the_prompt_and_nothing_else():
    net, prompts = network(), list(examples())
    bare = [Example(p.tokens[p.is_prompt], p.is_prompt[p.is_prompt]) for p in prompts]
    assert torch.equal(states(net, prompts)[-1].x, states(net, bare)[-1].x)


def test_mistakes():
    long = [Example(np.zeros(L + 1, np.int64), np.ones(L + 1, bool))]
    with pytest.raises(ValueError, match=f"does not fit into L = {L}"):
        batch(long)
    with pytest.raises(ValueError, match="raise L"):
        states(network(), long)
    with pytest.raises(ValueError, match="steps is 0"):
        states(network(), list(examples()), steps=0)
