"""Metrics against values worked out by hand, against other people's programs, and their invariants."""

import json
import shutil
import sys
import warnings
from importlib.util import find_spec
from itertools import combinations, pairwise
from math import exp, log, log2, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddot.core.absorbing import CleanToken
from ddot.data.tokenizer import learn_bpe
from ddot.evaluation import run
from ddot.evaluation.items import Program, Sentence
from ddot.evaluation.metrics.fluency import causal_model, perplexity
from ddot.evaluation.metrics.meteor import meteor, meteor_nltk, meteor_sums
from ddot.evaluation.metrics.scoring import METRICS, OF_FILLS, Fluency, code_bleu, compare, measure, score
from ddot.evaluation.metrics.sums import Sums, difference, interval, mean
from ddot.evaluation.metrics.words import (
    bleu,
    distinct,
    exact_match,
    gaps_extra,
    gaps_found,
    length_error,
    length_error_absolute,
    nist,
    success,
)
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.folder import save_model
from ddot.network.llama import Llama, LlamaConfig
from ddot.version import install_command


def words(text):
    return text.split()


ITEMS = [
    Sentence.of("0", tuple(words("the ferry leaves the old pier at noon")), (0, 1, 6, 7)),
    Sentence.of("1", tuple(words("nobody remembered who had painted the gate green")), (0, 2, 7)),
    Sentence.of("2", tuple(words("a heron stood in the shallow water")), (3, 4)),
    Sentence.of("3", tuple(words("we counted nine lanterns on the bridge")), (0, 1, 2, 3, 4, 5, 6)),
]
REFERENCES = [list(item.words) for item in ITEMS]
TEXTS = [
    words("the ferry leaves the island at noon"),
    words("nobody asked who painted the gate green"),
    words("a heron waded the shallow stream in"),
    words("we counted nine lanterns on the bridge"),
]
LINES = [" ".join(text) for text in TEXTS]
# Words as odd as they come: a space within, white space only, nothing at all.
WORDS = st.sampled_from(["a", "b", "c", "d", "a b", "\u00a0", ""])


def pairs(least):
    text = st.lists(WORDS, min_size=least, max_size=9)
    return st.lists(st.tuples(text, text), min_size=1, max_size=5)


def split(some):
    return [list(reference) for reference, _ in some], [list(text) for _, text in some]


# --- BLEU


def test_bleu_by_hand():
    reference, text = [words("the small dog sat by the door")], [words("the small dog sat by door")]
    # 6 words for 7: the brevity penalty is e^(1 − 7/6). Right: 6 of 6 words, 4 of 5 pairs ("by door" is wrong),
    # 3 of 4 triples, 2 of 3 quadruples.
    brevity = exp(1 - 7 / 6)
    assert bleu(reference, text, 2).value == pytest.approx(100 * brevity * sqrt(4 / 5))
    assert bleu(reference, text, 4).value == pytest.approx(100 * brevity * (4 / 5 * 3 / 4 * 2 / 3) ** (1 / 4))
    # A word counts as often as the reference has it: 2 of 5 are right, and 5 words for 3 bring no penalty.
    assert bleu([["so", "so", "far"]], [["so"] * 5], 1).value == pytest.approx(40)


def test_bleu_of_a_corpus_adds_counts_and_not_scores():
    # Pairs: 1 of 1 and 1 of 3. Words: 2 of 2 and 2 of 4. Lengths 6 and 6.
    references, texts = [["a", "b"], ["c", "d", "e", "f"]], [["a", "b"], ["c", "d", "x", "y"]]
    assert bleu(references, texts, 2).value == pytest.approx(100 * sqrt(4 / 6 * 2 / 4))


@settings(max_examples=60)
@given(some=pairs(least=4))
def test_sacrebleu_and_nltk_agree(some):
    from nltk.translate.bleu_score import corpus_bleu

    references, texts = split(some)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NLTK's advice where nothing matches
        for order in (2, 4):
            expected = 100 * corpus_bleu([[r] for r in references], texts, weights=(1 / order,) * order)
            assert bleu(references, texts, order).value == pytest.approx(expected, abs=1e-9)


def test_texts_too_short_for_an_ngram_have_none():
    from nltk.translate.bleu_score import corpus_bleu

    texts = [["a", "b", "c", "d"], ["e"]]
    assert bleu(texts, texts, 4).value == pytest.approx(100)
    # NLTK takes "e" for a wrong pair, a wrong triple and a wrong quadruple: 3 of 4, 2 of 3, 1 of 2.
    assert corpus_bleu([[t] for t in texts], texts) == pytest.approx((3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))


def test_bleu_is_the_one_sacrebleu_gives_for_the_corpus():
    from sacrebleu.metrics import BLEU

    corpus = BLEU(tokenize="none", smooth_method="none", force=True)
    expected = corpus.corpus_score([" ".join(t) for t in TEXTS], [[" ".join(r) for r in REFERENCES]]).score
    assert bleu(REFERENCES, TEXTS, 4).value == pytest.approx(expected, rel=1e-12)


# --- NIST


def test_nist_by_hand():
    # Of 4 words "a" is 2, "b" and "c" are 1 each: 1, 2 and 2 bits. After "a" comes "b" once in two: 1 bit.
    # Text: words 1 + 2 + 2 bits over 3; pairs "a b" 1 bit, "b c" none, over 2. Length 3 of 4.
    penalty = exp(log(1 / 2) * (log(3 / 4) / log(2 / 3)) ** 2)
    assert nist([["a", "b", "a", "c"]], [["a", "b", "c"]], 2).value == pytest.approx((5 / 3 + 1 / 2) * penalty)
    # Two thirds of the length halve the score: 2 words of log₂ 3 bits each, over 2.
    assert nist([["a", "b", "c"]], [["a", "b"]], 1).value == pytest.approx(log2(3) / 2)


@settings(max_examples=60)
@given(some=pairs(least=0))
def test_nist_is_the_one_of_nltk(some):
    from nltk.translate.nist_score import corpus_nist

    # NLTK divides by zero where there is no n-gram at all.
    references, texts = split([*some, (["a", "b", "a", "c"], ["b", "a", "c", "d"])])
    for order in (2, 4):
        expected = corpus_nist([[r] for r in references], texts, order)
        assert nist(references, texts, order).value == pytest.approx(expected, abs=1e-12)


def test_nist_where_no_text_is_long_enough():
    # 1 word of log₂ 3 bits, no pairs; a third of the length.
    penalty = exp(log(1 / 2) * (log(1 / 3) / log(2 / 3)) ** 2)
    assert nist([["a", "b", "c"]], [["a"]], 2).value == pytest.approx(log2(3) * penalty)
    assert nist([["a", "b", "c"]], [[]], 2).value == 0


# --- success, exact match, length, distinct


def test_success_wants_every_given_word_in_order():
    asked = [["a", "b"], ["a", "b"], ["a", "a"], []]
    assert success(asked, [["x", "a", "y", "b"], ["b", "a"], ["a", "x"], []]).value == 50


def test_gaps_by_hand():
    given, missing = [["a", "b"]] * 6, [[0, 2, 0]] * 6
    texts = ["a x b", "a b", "x a b", "x a y b", "b a", "a x b x"]
    texts = [text.split() for text in texts]
    assert gaps_found(given, missing, texts).value == pytest.approx(100 * 3 / 6)
    assert gaps_extra(given, missing, texts).value == pytest.approx(100 * 3 / 6)
    # Two gaps in one text, one of them found; none in the other.
    found = gaps_found([["a"], ["c"]], [[1, 3], [0, 0]], [["a", "x"], ["c", "x"]])
    assert found.value == 50
    # Which "a" was given? The one that makes the fewest gaps wrong.
    assert gaps_found([["a", "b"]], [[0, 1, 0]], [["a", "a", "b"]]).value == 100
    assert gaps_extra([["a", "b"]], [[0, 1, 0]], [["a", "a", "b"]]).value == 0
    assert gaps_extra([["a", "b"]], [[1, 0, 0]], [["a", "a", "b"]]).value == 0
    assert gaps_found([[]], [[2]], [[]]).value == 0
    assert gaps_found([[]], [[2]], [["x"]]).value == 100


@given(data=st.data())
@settings(max_examples=300)
def test_gaps_are_those_of_the_best_of_all_alignments(data):
    letters = st.lists(st.sampled_from("abc"), max_size=7)
    text, words = data.draw(letters), data.draw(st.lists(st.sampled_from("abc"), max_size=4))
    missing = data.draw(st.lists(st.integers(0, 1), min_size=len(words) + 1, max_size=len(words) + 1))
    every = []
    for places in combinations(range(len(text)), len(words)):
        if [text[place] for place in places] == words:
            is_full = [right - left > 1 for left, right in pairwise([-1, *places, len(text)])]
            left_empty = sum(count and not full for count, full in zip(missing, is_full, strict=True))
            extra = sum(full and not count for count, full in zip(missing, is_full, strict=True))
            every.append((left_empty + extra, extra))
    wrong, extra = min(every, default=(sum(missing), 0))
    there = sum(missing)
    found = gaps_found([words], [missing], [text]).value
    assert found == pytest.approx(100 * (there - (wrong - extra)) / max(1, there))
    assert gaps_extra([words], [missing], [text]).value == 100 * (extra > 0)


def test_exact_match_and_length_error_by_hand():
    references, texts = [["a", "b"], ["c"], ["d", "e"]], [["a", "b"], ["c", "c", "c"], ["d"]]
    assert exact_match(references, texts).value == pytest.approx(100 / 3)
    assert length_error(references, texts).value == pytest.approx((0 + 2 - 1) / 3)
    assert length_error_absolute(references, texts).value == pytest.approx((0 + 2 + 1) / 3)


def test_distinct_by_hand():
    # Pairs: ab, ba, ab and ab. None spans two texts. Quadruples: abab.
    texts = [["a", "b", "a", "b"], ["a", "b"]]
    assert distinct(texts, 2) == 50
    assert distinct(texts, 4) == 100
    assert distinct([["a"]], 2) == 0


# --- METEOR

# What `SCORE` of meteor-1.5.jar gives for a text, and what `EVAL` then answers for it alone.
SOME = "7 8 3 3 3 3 2 2 0 0 0 0 0 0 0 0 0 0 0 0 3 5 5", 0.287235841620908
WHOLE = "5 5 2 2 1 1 2 2 1 1 0 0 1 1 0 0 0 0 0 0 1 5 5", 0.8363636363636364
SAME = "6 6 3 3 3 3 3 3 0 0 0 0 0 0 0 0 0 0 0 0 1 6 6", 1.0
LONGER = "6 4 3 3 1 1 1 1 0 0 0 0 0 0 0 0 2 1 2 1 1 6 4", 0.9985815602836879
EMPTY = "0 6 0 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", 0.0


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        *(([row], answer) for row, answer in (SOME, WHOLE, SAME, LONGER, EMPTY)),
        ([SOME[0], WHOLE[0]], 0.37385788450329016),
        ([SOME[0], WHOLE[0], SAME[0]], 0.45318960977862466),
        ([SOME[0], LONGER[0]], 0.3837427647508399),
        ([SOME[0], EMPTY[0], SAME[0]], 0.3108921288885712),
    ],
)
def test_meteor_combines_statistics_as_the_program_does(rows, expected):
    fields = np.array([[float(field) for field in row.split()] for row in rows])
    assert meteor_sums(fields).value == pytest.approx(100 * expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("java") or not find_spec("pycocoevalcap"), reason="needs Java and pycocoevalcap")
def test_meteor_by_hand_and_by_java():
    references = [
        words("the sailor bought fresh bread at the harbour"),
        words("she baked two small loaves"),
        words("un café , naïve and tiny"),
        words("nothing here"),
        words("café"),
    ]
    texts = [
        words("the sailor sold bread in the harbour"),
        words("she bakes two little loaves"),
        words("un café ||| , naïve and tiny"),
        [],
        words("cafà"),
    ]
    sums = meteor(references, texts)
    alone = [Sums(row[None], sums.combine).value for row in sums.rows]
    # Content words weigh 3/4, function words (the, at, in, she, two) 1/4. Found: sailor, bread, harbour, the, the.
    # P = (9/4 + 2/4) / (4·3/4 + 3·1/4) = 11/15, R = (9/4 + 2/4) / (5·3/4 + 3·1/4) = 11/18, 3 chunks of 5 words.
    P, R = 11 / 15, 11 / 18
    assert alone[0] == pytest.approx(100 * P * R / (0.85 * P + 0.15 * R) * (1 - 0.6 * (3 / 5) ** 0.2))
    # A stem counts 0.6, a synonym 0.8; all is matched in one piece, so that nothing is taken off:
    # P = R = (3/4·(1 + 0.6 + 0.8) + 2·1/4) / (3·3/4 + 2·1/4) = 2.3 / 2.75.
    assert alone[1] == pytest.approx(100 * 2.3 / 2.75)
    assert alone[2] == pytest.approx(100)  # the program's own separator is left out
    assert alone[3] == 0
    assert alone[4] == 0  # letters beyond ASCII arrive as they are


def test_without_java_there_is_a_sentence(monkeypatch, tmp_path):
    pytest.importorskip("pycocoevalcap")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="install a Java runtime"):
        meteor(REFERENCES, TEXTS)
    (tmp_path / "java").write_text("#!/bin/sh\necho no memory left >&2\nexit 1\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(ValueError, match="Java said: no memory left"):
        meteor(REFERENCES, TEXTS)


def tiny_wordnet(folder):
    """WordNet files with one synset, {car, auto}."""
    folder.mkdir(parents=True)
    for kind in ("noun", "verb", "adj", "adv"):
        for name in (f"data.{kind}", f"index.{kind}", f"{kind}.exc"):
            (folder / name).write_text("")
    for name in ("cntlist.rev", "index.sense"):
        (folder / name).write_text("")
    (folder / "lexnames").write_text("00\tnoun.all\t1\n")
    (folder / "data.noun").write_text("00000000 00 n 02 car 0 auto 0 000 | it has wheels\n")
    (folder / "index.noun").write_text("auto n 1 0 1 0 00000000\ncar n 1 0 1 0 00000000\n")


@pytest.fixture
def nltk_data(monkeypatch, tmp_path):
    """A folder that is the only one NLTK looks for data in."""
    import nltk
    from nltk.corpus import wordnet

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    wordnet._unload()
    yield tmp_path
    wordnet._unload()


@pytest.mark.parametrize("debian", [False, True])
def test_meteor_of_nltk_by_hand(nltk_data, monkeypatch, debian):
    monkeypatch.setattr("ddot.evaluation.metrics.meteor._DEBIAN", nltk_data / "debian")
    with pytest.raises(ValueError, match="needs WordNet"):
        meteor_nltk([["a"]], [["a"]])
    tiny_wordnet(nltk_data / ("debian" if debian else "corpora/wordnet"))
    if debian:
        for name in ("lexnames", "index.sense"):
            (nltk_data / "debian" / name).unlink()
    # "car" is matched as a synonym, "stopping" by its stem: 3 of 3 words in 1 chunk, and 0.5·(1/3)³ is taken off.
    first = 1 - 0.5 * (1 / 3) ** 3
    # 2 words of 3 in text and reference, in 2 chunks: F = 2/3, and 0.5·(2/2)³ is taken off.
    second = 2 / 3 * (1 - 0.5)
    found = meteor_nltk(
        [["the", "auto", "stopped"], ["red", "or", "blue"]], [["the", "car", "stopping"], ["red", "and", "blue"]]
    )
    assert found.value == pytest.approx(100 * (first + second) / 2)


# --- CodeBLEU

PROGRAM = "def add(a, b):\n    c = a + b\n    return c\n"


def test_code_bleu_by_hand():
    text = "def add(a, b):\n    c = a + b\n"
    # 8 words of 10, all right: BLEU is e^(1 − 10/8).
    ngrams = exp(-1 / 4)
    # Recall of words, keywords (def, return) weighing 1 and others 0.2: (1 + 7·0.2) of (2 + 8·0.2); of pairs 7 of 9,
    # triples 6 of 8, quadruples 5 of 7; the package takes nothing off here for the length.
    weighted = (2.4 / 3.6 * 7 / 9 * 6 / 8 * 5 / 7) ** (1 / 4)
    # Of 8 subtrees parameters, statement, assignment and sum are found; module, function, block and return are not.
    syntax = 4 / 8
    # Of 6 nodes of the data flow (a, b, c from a and b, a from a, b from b, c from c) the last is not found.
    flow = 5 / 6
    assert code_bleu([PROGRAM], [text]) == pytest.approx(100 * (ngrams + weighted + syntax + flow) / 4)
    assert code_bleu([PROGRAM, text], [PROGRAM, text]) == pytest.approx(100)


def test_code_bleu_does_not_reward_empty_texts():
    with pytest.raises(ValueError, match="undefined"):
        code_bleu([PROGRAM], [""])


# --- fluency


def folder_of(tmp_path, blocks=1, meta=None, zero=False):
    """A small Llama in a model folder, with a tokenizer learnt here; and its trunk."""
    tokenizer = learn_bpe([" ".join(reference) for reference in REFERENCES], 300)
    V = tokenizer.vocabulary
    trunk = LlamaConfig(width=16, blocks=blocks, heads=2, key_heads=1, inner_width=24, vocabulary=V.rows)
    config = DenoiserConfig(trunk=trunk, vocabulary=V, score=CleanToken())
    model = Denoiser(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0 if zero else 20)
    save_model(model.state_dict(), config, tokenizer, meta or {"converted_from": "small"}, tmp_path)
    return model.trunk, tokenizer


def test_perplexity_by_hand():
    # 3 bits in 3 tokens and 2 in one: e^((log 8 + log 4) / 4).
    def three_and_one(texts):
        return np.array([log(8), log(4)]), np.array([3, 1])

    assert perplexity(["a", "b"], three_and_one).value == pytest.approx(32 ** (1 / 4))


def test_a_model_that_knows_nothing_is_as_perplexed_as_it_has_tokens(tmp_path):
    _, tokenizer = folder_of(tmp_path, zero=True)
    assert perplexity(["we counted", "nine"], causal_model(tmp_path)).value == pytest.approx(
        tokenizer.vocabulary.base, rel=1e-5
    )


def test_perplexity_reads_from_the_left(tmp_path):
    trunk, tokenizer = folder_of(tmp_path)
    texts = ["the gate", "a heron stood in the shallow water", "", "nine"]
    nats, tokens = causal_model(tmp_path, batch=2)(texts)
    # One block gives the last token of a text the same in both directions: so each token is predicted from a text that
    # ends before it, by the network as it is, without padding.
    assert isinstance(trunk, Llama)
    assert not trunk.config.causal
    for text, found, count in zip(texts, nats, tokens, strict=True):
        ids = torch.tensor([tokenizer.edge, *tokenizer.encode(text).tolist()])
        expected = 0.0
        for end in range(1, len(ids)):
            h = trunk.hidden(trunk.embed(ids[None, :end]), torch.arange(float(end))[None], torch.ones(1))
            ordinary = trunk.logits(h[:, -1])[0, : tokenizer.vocabulary.base]
            expected -= torch.log_softmax(ordinary, -1)[ids[end]].item()
        assert count == len(ids) - 1
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_perplexity_refuses_what_is_no_language_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model"):
        causal_model(tmp_path / "nothing")
    folder_of(tmp_path, meta={"step": 10})
    with pytest.raises(ValueError, match="was trained to fill blanks"):
        causal_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["trunk"] = {"is": "DiTConfig", "width": 16, "blocks": 1, "heads": 2, "vocabulary": 320}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=DiTConfig.__name__):
        causal_model(tmp_path)
    with pytest.raises(ValueError, match="at least one token"):
        perplexity([""], lambda texts: (np.zeros(1), np.zeros(1, int)))


# --- intervals


@pytest.mark.parametrize("order", [2, 4])
def test_interval_is_that_of_scores_counted_anew(order):
    rng = np.random.default_rng(1)
    references = [rng.choice(list("abcdef"), 12).tolist() for _ in range(20)]
    texts = [[word if rng.random() < 0.8 else "x" for word in reference] for reference in references]
    drawn = np.random.default_rng(7).multinomial(20, np.full(20, 1 / 20), 40)
    scores = []
    for times in drawn:
        again = [i for i, n in enumerate(times) for _ in range(n)]
        scores.append(bleu([references[i] for i in again], [texts[i] for i in again], order).value)
    expected = np.quantile(scores, [0.025, 0.975])
    assert interval(bleu(references, texts, order), samples=40, seed=7) == pytest.approx(tuple(expected))


def test_interval_of_a_mean_is_about_two_standard_errors_wide():
    values = np.random.default_rng(3).normal(5, 2, 400)
    low, high = interval(mean(values.tolist()), samples=4000)
    error = values.std() / sqrt(400)
    assert (high - low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.05)
    assert (high + low) / 2 == pytest.approx(values.mean(), abs=error / 5)
    assert interval(mean(values.tolist()), samples=50) == interval(mean(values.tolist()), samples=50)
    assert interval(mean(values.tolist()), samples=50) != interval(mean(values.tolist()), samples=50, seed=1)


def test_difference_is_paired():
    values = np.random.default_rng(4).normal(0, 50, 30).round()
    apart = difference(mean((values + 1).tolist()), mean(values.tolist()), samples=200)
    # One more on every item is one more on every resample, however far the items lie apart.
    assert (apart.difference, apart.low, apart.high, apart.wins) == pytest.approx((1, 1, 1, 1))
    assert difference(mean(values.tolist()), mean(values.tolist())).wins == 0.5
    with pytest.raises(ValueError, match="cannot be paired"):
        difference(mean([1.0]), mean([1.0, 2.0]))
    with pytest.raises(ValueError, match="needs items"):
        interval(mean([]))


# --- all together

ON_WORDS = [name for name in METRICS if name not in ("meteor", "meteor_nltk", "codebleu", "perplexity", *OF_FILLS)]


def test_identical_texts_score_best():
    best = {"bleu2": 100, "bleu4": 100, "success": 100, "exact": 100, "length_error": 0, "length_error_abs": 0}
    best |= {"gaps_found": 100, "gaps_extra": 0}
    found = score(ITEMS, [item.text for item in ITEMS], ON_WORDS)
    assert {name: found[name] for name in best} == pytest.approx(best)
    other = score(ITEMS, LINES, ON_WORDS)
    for name in ("bleu2", "bleu4", "nist2", "nist4", "exact"):
        assert other[name] < found[name]


@given(order=st.permutations(range(4)))
@settings(max_examples=8)
def test_the_order_of_items_does_not_matter(order):
    moved = score([ITEMS[i] for i in order], [LINES[i] for i in order], ON_WORDS)
    same = score(ITEMS, LINES, ON_WORDS)
    assert moved.pop("kept") == same.pop("kept")
    assert moved == pytest.approx(same)


def test_score_goes_on_without_what_it_cannot_have(monkeypatch, nltk_data):
    monkeypatch.setattr("ddot.evaluation.metrics.meteor._DEBIAN", nltk_data / "debian")
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)  # as if it were not installed
    monkeypatch.setenv("PATH", str(nltk_data))
    found = score(ITEMS, LINES, list(METRICS), samples=20)
    assert set(found["missing"]) == {"bleu2", "bleu4", "meteor", "meteor_nltk", "codebleu", "perplexity", *OF_FILLS}
    assert found["missing"]["bleu2"] == f"BLEU needs the extra `metrics`: {install_command('metrics')}"
    assert found["nist4"] == nist(REFERENCES, TEXTS, 4).value
    assert found["success"] == 75  # all but "in the"
    assert set(found["intervals"]) == set(found) - {"missing", "intervals", "kept", "d2", "d4"}
    low, high = found["intervals"]["nist4"]
    assert low < found["nist4"] < high


def test_programs_are_scored_as_they_are_written():
    program = Program("0", (PROGRAM, ""), ("",))
    found = score([program], [PROGRAM], ["bleu4", "success", "codebleu"])
    assert found.pop("kept") == {str(len(PROGRAM.split())): [1, 1]}
    assert found == pytest.approx({"bleu4": 100, "success": 100, "codebleu": 100})
    assert "line breaks" in score(ITEMS, LINES, ["codebleu"])["missing"]["codebleu"]


def test_perplexity_of_items(tmp_path):
    folder_of(tmp_path)
    judge = Fluency("judge", causal_model(tmp_path))
    found = score(ITEMS, LINES, ["perplexity"], judge)
    assert found == {
        "perplexity": perplexity([" ".join(text) for text in TEXTS], judge.nats).value,
        "language_model": "judge",
    }
    assert "--language-model" in score(ITEMS, LINES, ["perplexity"])["missing"]["perplexity"]


def test_compare_is_the_difference_of_scores():
    unfilled = [item.unfilled for item in ITEMS]
    wanted = ["bleu2", "exact", "d2", "meteor_nltk", "perplexity"]
    found, missing = compare(measure(ITEMS, LINES, wanted), measure(ITEMS, unfilled, wanted), samples=50)
    first, second = (score(ITEMS, texts, ["bleu2", "exact"]) for texts in (LINES, unfilled))
    for name in ("bleu2", "exact"):
        assert found[name].difference == pytest.approx(first[name] - second[name])
        assert found[name].low <= found[name].difference <= found[name].high
    assert found["bleu2"].wins > 0.9
    assert {"d2", "perplexity"} <= set(missing)


def test_evaluate_scores_the_usual():
    found = run.score(ITEMS, LINES)
    assert list(found) == ["bleu2", "bleu4", "success", "length_error", "length_error_abs", "kept"]
    for count in {len(item.given) for item in ITEMS}:
        some = [(item, text) for item, text in zip(ITEMS, LINES, strict=True) if len(item.given) == count]
        alone = score(*zip(*some, strict=True), ["success"])["success"]
        kept, texts = found["kept"][str(count)]
        assert (100 * kept / texts, texts) == (pytest.approx(alone), len(some))
    assert sum(texts for _, texts in found["kept"].values()) == len(ITEMS)
    assert found["length_error"] == pytest.approx((-1 - 1 + 0 + 0) / 4)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="metric 'magic'; available: bleu2"):
        score(ITEMS, LINES, ["magic"])
    with pytest.raises(ValueError, match="3 texts for 4 items"):
        score(ITEMS, LINES[:3])
    with pytest.raises(ValueError, match="0 texts for 0 items"):
        score([], [])
