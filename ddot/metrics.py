"""What filled texts are measured with. Texts are lists of words."""

from collections.abc import Sequence

Words = Sequence[str]


def bleu(references: Sequence[Words], texts: Sequence[Words], order: int) -> float:
    """Corpus BLEU with n-grams up to `order`, unsmoothed, in percent, on the words as they are."""
    from sacrebleu.metrics import BLEU

    counted = BLEU(max_ngram_order=order, tokenize="none", smooth_method="none", force=True)
    return counted.corpus_score([" ".join(text) for text in texts], [[" ".join(words) for words in references]]).score


def success_rate(given: Sequence[Words], texts: Sequence[Words]) -> float:
    """Percent of texts in which the given words appear in order."""
    return 100 * sum(_in_order(words, text) for words, text in zip(given, texts, strict=True)) / max(1, len(texts))


def _in_order(words: Words, text: Words) -> bool:
    rest = iter(text)
    return all(word in rest for word in words)


def length_error(references: Sequence[Words], texts: Sequence[Words]) -> tuple[float, float]:
    """(mean, mean absolute) difference of length in words, text minus reference."""
    differences = [len(text) - len(reference) for reference, text in zip(references, texts, strict=True)]
    count = max(1, len(differences))
    return sum(differences) / count, sum(map(abs, differences)) / count
