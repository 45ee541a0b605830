"""Metrics on words. A text is a list of words, compared as they are: no tokenisation, no case folding."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import exp, log, log2

import numpy as np
from jaxtyping import Float

from ddot.evaluation.metrics.sums import Sums, mean
from ddot.version import extra

Words = Sequence[str]


def bleu(references: Sequence[Words], texts: Sequence[Words], order: int) -> Sums:
    """Corpus BLEU with n-grams up to `order`, unsmoothed, in percent, by sacreBLEU.

    For texts shorter than `order`, NLTK's `corpus_bleu` counts one wrong n-gram; sacreBLEU and the definition
    (Papineni et al., 2002) count none.
    """
    with extra("BLEU", "metrics"):
        from sacrebleu.metrics import BLEU

    # `effective_order` does not affect counts; without it sacreBLEU warns about every single sentence.
    metric = BLEU(max_ngram_order=order, tokenize="none", smooth_method="none", effective_order=True, force=True)
    numbers: dict[str, int] = {}

    def numbered(words: Words) -> str:  # sacreBLEU splits at white space
        return " ".join(str(numbers.setdefault(word, len(numbers))) for word in words)

    def combine(sums: Float[np.ndarray, "statistics"]) -> float:
        length, reference, *counts = sums.astype(int).tolist()
        return float(BLEU.compute_bleu(counts[:order], counts[order:], length, reference, max_ngram_order=order).score)

    rows = []
    for reference, text in zip(references, texts, strict=True):
        scored = metric.sentence_score(numbered(text), [numbered(reference)])
        rows.append([scored.sys_len, scored.ref_len, *scored.counts, *scored.totals])
    return Sums(np.array(rows, float).reshape(-1, 2 + 2 * order), combine)


def nist(references: Sequence[Words], texts: Sequence[Words], order: int) -> Sums:
    """Corpus NIST with n-grams up to `order` (Doddington, 2002).

    Equals NLTK's `corpus_nist`, which gives no statistics per text and fails if no text has `order` words. Resamples
    use the information weights of all references.
    """
    information = _information(references, order)

    def combine(sums: Float[np.ndarray, "statistics"]) -> float:
        gained, total = sums[2 : 2 + order], sums[2 + order :]
        return float((gained / np.maximum(total, 1)).sum()) * _nist_penalty(float(sums[0]), float(sums[1]))

    rows = []
    for reference, text in zip(references, texts, strict=True):
        gained, total = [], []
        for n in range(1, order + 1):
            matches = Counter(ngrams(text, n)) & Counter(ngrams(reference, n))
            gained.append(sum(information[ngram] * count for ngram, count in matches.items()))
            total.append(max(0, len(text) - n + 1))
        rows.append([len(text), len(reference), *gained, *total])
    return Sums(np.array(rows, float).reshape(-1, 2 + 2 * order), combine)


def _information(references: Sequence[Words], order: int) -> dict[tuple[str, ...], float]:
    """Information of each n-gram's last word in bits: log₂ (count of its first n − 1 words / its count)."""
    counts = Counter(ngram for words in references for n in range(1, order + 1) for ngram in ngrams(words, n))
    words = sum(len(reference) for reference in references)
    return {ngram: log2((counts[ngram[:-1]] if len(ngram) > 1 else words) / counts[ngram]) for ngram in counts}


def _nist_penalty(length: float, reference: float) -> float:
    """1 for texts that are long enough, 1/2 at two thirds of the reference length."""
    if not length or length >= reference:
        return 1.0
    return exp(log(0.5) / log(1.5) ** 2 * log(length / reference) ** 2)


def ngrams(words: Words, n: int) -> list[tuple[str, ...]]:
    """All n-grams, in order."""
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def _per_text(value: Callable[[Words, Words], float]) -> Callable[[Sequence[Words], Sequence[Words]], Sums]:
    """The mean over texts of a function of the reference (or the given words) and the text."""
    return lambda references, texts: mean([float(value(*pair)) for pair in zip(references, texts, strict=True)])


def _in_order(words: Words, text: Words) -> bool:
    rest = iter(text)
    return all(word in rest for word in words)


# Percent of texts in which the given words appear in order (the paper's SR).
success = _per_text(lambda given, text: 100 * _in_order(given, text))
# Percent of texts equal to the reference.
exact_match = _per_text(lambda reference, text: 100 * (list(reference) == list(text)))
# Mean difference of length in words; negative if texts are too short.
length_error = _per_text(lambda reference, text: len(text) - len(reference))
length_error_absolute = _per_text(lambda reference, text: abs(len(text) - len(reference)))


def gaps_found(given: Sequence[Words], missing: Sequence[Sequence[int]], texts: Sequence[Words]) -> Sums:
    """Percent of the gaps with missing words that got any. `missing`: the number of words missing before each given
    word, and after the last. A text that lost given words counts as having filled none."""
    rows = []
    for words, counts, text in zip(given, missing, texts, strict=True):
        total = sum(count > 0 for count in counts)
        wrong = _wrong_gaps(words, counts, text)
        rows.append([0.0 if wrong is None else total - wrong[0], total])
    return Sums(np.array(rows, float).reshape(-1, 2), lambda sums: 100 * float(sums[0] / max(1.0, sums[1])))


def gaps_extra(given: Sequence[Words], missing: Sequence[Sequence[int]], texts: Sequence[Words]) -> Sums:
    """Percent of texts that keep the given words in order but write where none are missing."""
    counts = [_wrong_gaps(*item) for item in zip(given, missing, texts, strict=True)]
    return mean([100.0 * (count is not None and count[1] > 0) for count in counts])


def _wrong_gaps(words: Words, missing: Sequence[int], text: Words) -> tuple[int, int] | None:
    """(gaps wrongly left empty, gaps wrongly filled), or None if given words were lost.

    If given words occur several times in the text, the best alignment counts: the fewest wrong gaps, then the fewest
    wrongly filled ones.
    """
    unit = len(words) + 2  # cost of a gap wrongly left empty; a wrongly filled one costs 1 more
    empty = [unit * (count > 0) for count in missing]
    full = [(unit + 1) * (count == 0) for count in missing]
    never = unit * unit
    least = np.full(len(text) + 1, never)  # lowest cost if the last given word ends at each place
    least[0] = 0
    for word, if_empty, if_full in zip(words, empty[:-1], full[:-1], strict=True):
        earlier = np.minimum.accumulate(least)[:-1]  # ends at each place or before it
        cost = np.minimum(least[:-1] + if_empty, np.append(never, earlier[:-1]) + if_full)
        least = np.append(never, np.where([written == word for written in text], cost, never))
    total = min(least[-1] + empty[-1], least[:-1].min(initial=never) + full[-1])
    if total >= never:
        return None
    wrong, extra = divmod(int(total), unit)
    return wrong - extra, extra


def distinct(texts: Sequence[Words], n: int) -> float:
    """Percent of n-grams that are distinct, over all texts (the paper's D2 and D4).

    Not a sum over items, so it has no interval: a resample repeats items.
    """
    grams = [ngram for text in texts for ngram in ngrams(text, n)]
    return 100 * len(set(grams)) / max(1, len(grams))
