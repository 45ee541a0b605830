"""Batches are a pure function of (seed, step); what a row says of its text is true; failures reach the caller."""

import dataclasses
import multiprocessing
import os
import pickle
import signal
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddot.core.codes import AFTER, BEFORE, BOTH, GLUED, NOT_PROMPT, PAD, PROMPT, RESPONSE, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.positions import random_terminal
from ddot.data.masks import Block, Blocks, Independent, Keywords, Mix, Natural, Nothing, Telling
from ddot.data.shards import Corpus, pack
from ddot.data.tokenizer import Tokenizer, learn_bpe
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.training.batches import (
    Batches,
    EitherCut,
    ManySentences,
    Plan,
    WholeSentences,
    Windows,
    with_edges,
)

DOCUMENTS = [
    ["The kettle sang on the stove.", "Nobody heard it but the cat."],
    ["Rain again."],
    ["Two owls live behind the barn.", "They come out at dusk.", "We count them from the garden wall."],
    ["My sister mends clocks, radios and umbrellas in a shop that has no door."],
    ["Bread.", "Salt.", "A knife.", "The table was bare otherwise, and the lamp had gone out hours ago."],
]
OTHER = [["Seventeen boats left before dawn.", "One came back with a stranger on board."]]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """(tokenizer, two corpora)."""
    folder = tmp_path_factory.mktemp("corpora")
    texts = [sentence for document in DOCUMENTS + OTHER for sentence in document]
    tokenizer = learn_bpe(texts, 330)
    pack(DOCUMENTS, tokenizer, folder / "first")
    pack(OTHER, tokenizer, folder / "second")
    return tokenizer, [(3.0, Corpus(folder / "first")), (1.0, Corpus(folder / "second"))]


MASKS = Mix((1.0, Block(8)), (1.0, Blocks(2, 3)), (1.0, Keywords(1, 4)), (1.0, Independent()), (0.3, Nothing()))
PLANS = (
    Plan(
        DDOT(terminal=random_terminal),
        MASKS,
        EitherCut(0.5, WholeSentences(2), Windows(0.5)),
        Telling(located=0.7, gap_lengths=0.4, some_gap_lengths=0.4),
        lengths=(16, 32),
        whole_words=0.5,
        full_noise=0.2,
        weight=2.0,
    ),
    Plan(FixedLength(), MASKS, Windows(), Telling(located=1.0, gap_lengths=1.0), lengths=(32,), whole_words=0.0),
)


def made(parts, plans=PLANS, slots=512, seed=5, **more):
    tokenizer, corpora = parts
    return Batches(corpora, plans, tokenizer, slots, seed, **more)


def tensors(slots):
    return {field.name: getattr(slots, field.name) for field in dataclasses.fields(slots)}


def assert_same(one, other):
    assert one[0] == other[0]
    for name, tensor in tensors(one[1]).items():
        torch.testing.assert_close(tensor, tensors(other[1])[name], rtol=0, atol=0)


def left_over():
    """Worker processes, and the thread that waits for them."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("ddot-batches-ahead")]
    return [*multiprocessing.active_children(), *threads]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_batch_depends_on_seed_and_step_alone(parts, workers):
    expected = [made(parts)[step] for step in range(3, 9)]
    found = list(made(parts).stream(3, 9, workers))
    assert len(found) == 6
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
    assert not left_over()


def test_other_steps_and_seeds_give_other_batches(parts):
    first = made(parts, PLANS[1:])[0][1]
    for other in (made(parts, PLANS[1:])[1][1], made(parts, PLANS[1:], seed=6)[0][1]):
        assert not torch.equal(first.x_0, other.x_0)
        assert not torch.equal(first.u, other.u)
        assert not torch.equal(first.t, other.t)


@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_one_global_batch(parts, world):
    for step in range(4):
        index, whole = made(parts)[step]
        shares = [made(parts, rank=rank, world=world)[step] for rank in range(world)]
        assert {index} == {share[0] for share in shares}
        for name, tensor in tensors(whole).items():
            together = torch.stack([tensors(slots)[name] for _, slots in shares], 1).flatten(0, 1)
            torch.testing.assert_close(together, tensor, rtol=0, atol=0)


def test_batches_travel_to_processes_that_start_fresh(parts):
    batches = made(parts)
    assert_same(pickle.loads(pickle.dumps(batches))[2], batches[2])


def texts_of(corpora):
    """Every document of the corpora, whole, and the places where its sentences begin and end."""
    for _, corpus in corpora:
        for sentence in range(len(corpus)):
            yield corpus.passage(sentence, 1 << 30)


def is_part(tokens, text):
    n = len(tokens)
    return any(tokens == text[i : i + n] for i in range(len(text) - n + 1))


def test_rows_are_told_the_truth(parts):
    tokenizer, corpora = parts
    v, edge = tokenizer.vocabulary, tokenizer.edge
    documents = [tokens.tolist() for tokens, _ in texts_of(corpora)]
    seen = set()
    batches = made(parts)
    for step in range(12):
        index, slots = batches[step]
        B, L = slots.x_0.shape
        assert B * L == 512
        assert L in PLANS[index].lengths
        seen.add((index, L))
        for x, kind, hint, gap_length in zip(slots.x_0, slots.kind, slots.hint, slots.gap_length, strict=True):
            n = int((kind != PAD).sum())
            assert (kind[n:] == PAD).all()
            assert (x[n:] == v.pad).all()
            # The tokens are those of a text, between two edges that are given.
            ends, inner = [int(x[0]), int(x[n - 1])], x[1 : n - 1].tolist()
            assert any(is_part(inner, document) for document in documents)
            assert set(ends) <= {edge, v.sep}
            given = (kind == PROMPT)[:n]
            assert given[0]
            assert given[-1]
            # Hints: a gap called closed is closed. Lengths: one that is told is the true one.
            closed_after = torch.isin(hint, torch.tensor([GLUED, BEFORE]))
            closed_before = torch.isin(hint, torch.tensor([GLUED, AFTER]))
            for i in range(n):
                if kind[i] == RESPONSE:
                    assert hint[i] == NOT_PROMPT
                    assert gap_length[i] == UNKNOWN_LENGTH
                    continue
                if closed_after[i]:
                    assert i == n - 1 or given[i + 1]
                if closed_before[i]:
                    assert i == 0 or given[i - 1]
                if gap_length[i] != UNKNOWN_LENGTH:
                    after = i + 1
                    while after < n and not given[after]:
                        after += 1
                    assert gap_length[i] == after - i - 1
                    assert hint[i] != UNKNOWN
            assert (hint[:n][given] == UNKNOWN).all() or (hint[:n][given] != UNKNOWN).all()
            if index == 1:
                assert (gap_length[:n][given] != UNKNOWN_LENGTH).all()
    assert seen == {(0, 16), (0, 32), (1, 32)}


def test_every_kind_of_hint_and_told_gap_length_occurs(parts):
    slots = [made(parts)[step][1] for step in range(12)]
    hints = torch.cat([s.hint[s.kind == PROMPT] for s in slots])
    assert set(hints.tolist()) == {UNKNOWN, GLUED, BEFORE, AFTER, BOTH}
    lengths = torch.cat([s.gap_length[s.kind == PROMPT] for s in slots])
    assert (lengths == UNKNOWN_LENGTH).any()
    assert (lengths > 2).any()
    assert (lengths == 0).any()


def test_edges_say_where_the_text_really_begins_and_ends(parts):
    tokenizer, corpora = parts
    sep, edge = tokenizer.vocabulary.sep, tokenizer.edge
    passages = list(texts_of(corpora))
    kinds = set()
    for step in range(8):
        slots = made(parts, PLANS[1:])[step][1]
        for x, kind in zip(slots.x_0, slots.kind, strict=True):
            row = x[kind != PAD].tolist()
            first, inner, last = row[0], row[1:-1], row[-1]
            kinds.add((first == edge, last == edge))
            begins = [ends for tokens, ends in passages if tokens[: len(inner)].tolist() == inner]
            if first == edge:
                assert begins  # a sentence does begin there
            else:
                assert first == sep
            if last == edge:
                finishes = [tokens[:end].tolist()[-len(inner) :] for tokens, ends in passages for end in ends]
                assert inner in finishes  # a sentence does end there
            else:
                assert last == sep
    assert kinds == {(True, True), (True, False), (False, True), (False, False)}


def test_with_edges_by_hand(parts):
    tokenizer, _ = parts
    sep = tokenizer.vocabulary.sep
    tokens, given = with_edges(np.array([5, 6]), np.array([False, True]), True, False, tokenizer)
    assert tokens.tolist() == [tokenizer.edge, 5, 6, sep]
    assert given.tolist() == [True, False, True, True]


def test_without_edges_rows_hold_text_alone(parts):
    tokenizer, corpora = parts
    documents = [tokens.tolist() for tokens, _ in texts_of(corpora)]
    slots = made(parts, PLANS[:1], edges=False)[0][1]
    for x, kind in zip(slots.x_0, slots.kind, strict=True):
        assert any(is_part(x[kind != PAD].tolist(), document) for document in documents)
    assert not torch.isin(slots.x_0, torch.tensor([tokenizer.edge, tokenizer.vocabulary.sep])).any()


def test_words_are_given_whole_or_not_at_all(parts):
    tokenizer, _ = parts
    for share, broken in ((1.0, False), (0.0, True)):
        plan = Plan(FixedLength(), Independent(0.5, 0.5), whole_words=share, lengths=(32,))
        slots = made(parts, (plan,))[0][1]
        cut = []
        for x, kind in zip(slots.x_0, slots.kind, strict=True):
            n = int((kind != PAD).sum())
            words = tokenizer.words(x[1 : n - 1].numpy())
            given = (kind[1 : n - 1] == PROMPT).numpy()
            cut += [len(set(given[words == word])) > 1 for word in set(words.tolist())]
        assert any(cut) == broken


def test_plans_lengths_and_corpora_are_drawn_by_weight(parts):
    still = Plan(FixedLength(), Nothing(), lengths=(16, 32), weight=2.0)
    batches = made(parts, (still, dataclasses.replace(still, lengths=(32,), weight=1.0)), slots=32)
    drawn = [(index, slots.x_0.shape[1]) for index, slots in (batches[step] for step in range(240))]
    for what, share in (((0, 16), 1 / 3), ((0, 32), 1 / 3), ((1, 32), 1 / 3)):
        assert np.mean([one == what for one in drawn]) == pytest.approx(share, abs=0.1)
    second = [tokens.tolist() for tokens, _ in texts_of(parts[1][1:])]
    slots = made(parts, (dataclasses.replace(still, lengths=(32,)),), slots=32 * 300)[0][1]
    rows = [x[kind != PAD][1:-1].tolist() for x, kind in zip(slots.x_0, slots.kind, strict=True)]
    assert np.mean([any(is_part(row, text) for text in second) for row in rows]) == pytest.approx(0.25, abs=0.08)


def test_times_are_spread_over_the_global_batch(parts):
    plan = Plan(FixedLength(), Nothing(), Windows(), lengths=(8,))
    for step in range(3):
        t = np.sort(made(parts, (plan,), slots=8 * 64)[step][1].t.numpy())
        # One in each of 64 even parts of (1e-3, 1), up to where the circle is cut.
        np.testing.assert_allclose(np.diff(t), 0.999 / 64, rtol=1e-3)
        assert t[0] >= 1e-3
        assert t[-1] <= 1
    noisy = dataclasses.replace(plan, full_noise=0.25)
    t = made(parts, (noisy,), slots=8 * 800)[0][1].t
    assert (t == 1).float().mean() == pytest.approx(0.25, abs=0.08)


@settings(max_examples=30)
@given(most=st.integers(1, 3), longest=st.integers(1, 40), seed=st.integers(0, 10_000))
def test_cuts_keep_their_promise(parts, most, longest, seed):
    _, corpora = parts
    corpus = corpora[0][1]
    rng = np.random.default_rng(seed)
    passages = list(texts_of(corpora[:1]))
    whole = WholeSentences(most)(corpus, longest, rng)
    assert 0 < len(whole.tokens) <= longest
    heads = [
        ends.tolist() for tokens, ends in passages if tokens[: len(whole.tokens)].tolist() == whole.tokens.tolist()
    ]
    assert whole.begins
    assert heads
    if whole.ends:
        assert any(len(whole.tokens) in ends[:most] for ends in heads)
    window = Windows(0.5)(corpus, longest, rng)
    assert 0 < len(window.tokens) <= longest
    assert any(is_part(window.tokens.tolist(), tokens.tolist()) for tokens, _ in passages)


@settings(max_examples=30)
@given(low=st.floats(0.1, 0.9), longest=st.integers(1, 40), seed=st.integers(0, 10_000))
def test_many_sentences_are_whole_and_fill_the_row(parts, low, longest, seed):
    corpus = parts[1][0][1]
    passages = [corpus.passage(number, longest) for number in range(len(corpus))]
    passage = ManySentences(low)(corpus, longest, np.random.default_rng(seed))
    n = len(passage.tokens)
    assert 0 < n <= longest
    if not passage.ends:  # no sentence of the corpus was short enough in any draw
        assert not len(passage.sentences)
        return
    assert passage.sentences[-1] == n
    assert any(
        tokens[:n].tolist() == passage.tokens.tolist() and ends[ends <= n].tolist() == passage.sentences.tolist()
        for tokens, ends in passages
    )
    if n < low * longest:  # only where nothing long enough turned up
        assert n in [ends[-1] for _, ends in passages if len(ends)]


@pytest.mark.parametrize("cut", [WholeSentences(3), Windows(0.3), ManySentences(0.4)])
def test_passages_know_where_their_sentences_end(parts, cut):
    tokenizer, corpora = parts
    corpus, rng = corpora[0][1], np.random.default_rng(0)
    for _ in range(60):
        passage = cut(corpus, 24, rng)
        text = [tokenizer.decode([int(token)]) for token in passage.tokens]
        assert [piece.endswith(".") for piece in text] == passage.ends_sentence.tolist()


def test_times_are_no_smaller_than_the_least_noise(parts):
    plan = dataclasses.replace(PLANS[1], mask=Blocks(2, 3), least_noise=0.2, lengths=(32,))
    assert made(parts, (plan,))[0][1].t.min() >= 0.2


def test_pads_of_a_text_of_known_length_are_never_masked(parts):
    for step in range(3):
        slots = made(parts, PLANS[1:])[step][1]
        assert (slots.u[slots.kind == PAD] > 1).all()
        assert (slots.u[slots.kind != PAD] < 1).all()


def test_natural_blanks_reach_batches(parts):
    """Whole sentences go missing, and marks stay with the text unless a sentence does."""
    tokenizer, _ = parts
    plan = Plan(FixedLength(), Natural(most=1, dense=0.0), ManySentences(), lengths=(64,), unit=Tokenizer.units)
    slots = made(parts, (plan,), slots=64 * 128)[0][1]
    missing = [tokenizer.decode(x[kind == RESPONSE].numpy()) for x, kind in zip(slots.x_0, slots.kind, strict=True)]
    whole = {" " + sentence for document in DOCUMENTS + OTHER for sentence in document}
    assert len(whole & set(missing)) > 3
    assert any(text and not text.endswith(".") for text in missing)


def test_a_foreign_tokenizer_is_refused(parts):
    _, corpora = parts
    foreign = learn_bpe(["other words altogether"], 280)
    with pytest.raises(ValueError, match="packed with another tokenizer") as caught:
        Batches(corpora, PLANS, foreign, 512, 0)
    assert str(corpora[0][1].folder) in str(caught.value)


@pytest.mark.parametrize(
    ("slots", "world", "lengths", "sentence"),
    [
        (500, 1, (32,), "500 slots does not divide into rows of 32 over 1"),
        (96, 2, (32,), "96 slots does not divide into rows of 32 over 2"),
        (64, 1, (2,), "rows of 2 slots .* between two edges"),
    ],
)
def test_batches_that_do_not_divide_are_refused(parts, slots, world, lengths, sentence):
    with pytest.raises(ValueError, match=sentence):
        made(parts, (dataclasses.replace(PLANS[1], lengths=lengths),), slots, world=world)


@dataclasses.dataclass(frozen=True)
class BreaksLater:
    """A mask that fails on the first text it is given."""

    def __call__(self, units, rng):
        raise ValueError("the mask broke")


@pytest.mark.parametrize("workers", [0, 2])
def test_what_fails_in_a_worker_reaches_the_caller(parts, workers):
    stream = made(parts, (Plan(FixedLength(), BreaksLater(), lengths=(32,)),)).stream(0, 50, workers)
    with pytest.raises(ValueError, match="the mask broke"):
        next(stream)
    assert not left_over()


def test_a_stream_that_is_left_early_ends_its_thread_and_workers(parts):
    stream = made(parts).stream(0, 1 << 40, 2)
    next(stream)
    assert len(left_over()) == 3
    stream.close()
    assert not left_over()


def test_workers_leave_an_interrupt_to_the_main_process(parts):
    """Ctrl-C reaches every process of a terminal; the run still gets the batches it saves after."""
    stream = made(parts).stream(0, 30, 2)
    assert_same(next(stream), made(parts)[0])
    for worker in multiprocessing.active_children():
        os.kill(worker.pid, signal.SIGINT)
    for step, batch in enumerate(stream, 1):
        assert_same(batch, made(parts)[step])
    assert step == 29


def test_a_plan_draws_from_the_corpora_it_names_and_leaves_them_to_itself(parts):
    tokenizer, corpora = parts
    only = Plan(FixedLength(), Block(4), WholeSentences(1), lengths=(64,), sources=("second",), weight=1.0)
    rest = dataclasses.replace(only, sources=(), weight=2.0)
    batches = Batches(corpora, (rest, only), tokenizer, slots=64 * 8, seed=3)
    texts = {0: set(), 1: set()}
    for step in range(40):
        index, slots = batches[step]
        texts[index] |= {tokenizer.decode(row[row < tokenizer.vocabulary.base].numpy()) for row in slots.x_0}
    first, second = ({s for d in some for s in d} for some in (DOCUMENTS, OTHER))
    known = {0: first, 1: second}
    for index, found in texts.items():
        assert {text.replace("<|endoftext|>", "").strip() for text in found} <= known[index]
        assert found
    # Without its corpus a plan has no batches.
    batches = Batches(corpora[:1], (rest, only), tokenizer, slots=64 * 8, seed=3)
    assert {batches[step][0] for step in range(20)} == {0}
    with pytest.raises(ValueError, match="no plan draws from first"):
        Batches(corpora[:1], (only,), tokenizer, slots=64 * 8, seed=3)


def test_units_are_masked_as_a_whole(tmp_path):
    program = "x = 3\ny = x + 1\nz = y * 2\n\nprint(z)"
    tokenizer = learn_bpe([program], 300)
    pack([[program]], tokenizer, tmp_path / "python")
    plan = Plan(FixedLength(), Block(2), lengths=(64,), unit=Tokenizer.lines)
    _, slots = Batches([(1.0, Corpus(tmp_path / "python"))], (plan,), tokenizer, slots=64 * 64, seed=0)[0]
    seen = set()
    for x, kind in zip(slots.x_0.numpy(), slots.kind.numpy(), strict=True):
        missing = tokenizer.decode(x[kind == RESPONSE])
        seen.add(missing)
        assert missing.removeprefix(" ") in program
        assert all(line in (" " + program).splitlines(keepends=True) for line in missing.splitlines(keepends=True))
    assert len(seen) > 4
