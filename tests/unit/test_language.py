"""The language of results/language.py: its exact answers against every sentence, found one word at a time."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ddot.data.masks import Units

PLACE = Path(__file__).parents[2] / "results" / "language.py"
SPEC = importlib.util.spec_from_file_location("language", PLACE)
language = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(language)


@pytest.fixture(scope="module")
def whole():
    return language.Language()


def sentences(whole, given, longest):
    """{sentence: probability} of all that have the given words in order."""
    found = Counter()
    todo = [(1.0, (), whole.start)]
    after = {state: i for i, state in enumerate(whole.states)}
    while todo:
        p, words, at = todo.pop()
        state = whole.states[at]
        moves = whole._from_start() if at == whole.start else [*language.moves(state)]
        total = sum(weight for weight, *_ in moves)
        for weight, word, then in moves:
            if then == language.END and not word:
                if language.contains(words, given):
                    found[words] += p * weight / total
                continue
            longer = (*words, word)
            met = next(n for n in range(len(given), -1, -1) if language.contains(longer, given[:n]))
            if len(longer) + len(given) - met <= longest:
                if then == language.END:
                    if met == len(given):
                        found[longer] += p * weight / total
                else:
                    todo.append((p * weight / total, longer, after[then]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "given", "draws"),
    [
        ("block", "two dogs", 3_000), ("block", "a girl tomorrow", 3_000),
        ("keywords", "crows jumped", 500),
    ],
)  # fmt: skip
def test_exact_answers_are_drawn_from_the_posterior(whole, monkeypatch, kind, given, draws):
    monkeypatch.setattr(language, "LONGEST", 5)
    monkeypatch.setattr(language, "BLOCK", 2)
    given, rng = given.split(), np.random.default_rng(0)
    masks = {
        n: Counter(tuple(np.flatnonzero(language.MASKS[kind](Units.alike(n), rng))) for _ in range(4_000))
        for n in (3, 4, 5)
    }
    posterior = Counter()
    for words, p in sentences(whole, given, 5).items():
        for keep, count in masks[len(words)].items():
            if [words[i] for i in keep] == given:
                posterior[words] += p * count
    fill = whole.fill_block if kind == "block" else whole.fill_keywords
    drawn = Counter(tuple(fill(given, rng)) for _ in range(draws))
    assert drawn.keys() <= posterior.keys()
    # Pearson's statistic over sentences that are expected often enough, the others together; and each length.
    expected = {words: draws * p / posterior.total() for words, p in posterior.items()}
    cells = [(drawn[words], n) for words, n in expected.items() if n >= 5]
    cells.append((draws - sum(n for n, _ in cells), draws - sum(n for _, n in cells)))
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells if wanted > 1)
    assert statistic < 2.5 * len(cells) + 15
    for length in (4, 5):
        seen, wanted = (sum(n for words, n in each.items() if len(words) == length) for each in (drawn, expected))
        assert abs(seen - wanted) <= 3.5 * (wanted * max(0, 1 - wanted / draws)) ** 0.5 + 1e-6
    assert all(whole.accepts(words) for words in posterior)


def test_lengths_of_exact_answers_are_those_of_the_items(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(language, "TEXTS", 1)
    monkeypatch.setattr(language, "ITEMS", 200)
    language.write(tmp_path, whole)
    rng = np.random.default_rng(3)
    for kind, fill in (("block", whole.fill_block), ("keywords", whole.fill_keywords)):
        items = language.read_set(tmp_path, kind, "test")
        errors = np.array([len(fill(item.given, rng)) - len(item.words) for item in items])
        assert abs(errors.mean()) < 3 * errors.std() / len(errors) ** 0.5
