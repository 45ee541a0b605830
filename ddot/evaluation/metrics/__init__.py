"""What filled texts are measured with. `score` gives the row of a table; the metrics by themselves return `Sums`.

sums.py       a metric as sums over items; confidence intervals, paired differences
words.py      on words: BLEU, NIST, success rate, exact match, length error, distinct n-grams
meteor.py     METEOR 1.5 (Java), and NLTK's under its own name
code_bleu.py  CodeBLEU of Python
fills.py      on blanks: ROUGE, length error, empty fills
fluency.py    perplexity under a causal language model
scoring.py    all that is asked for, of one set of texts or of two against each other
"""

from ddot.evaluation.metrics.scoring import METRICS, Fluency, Measured, compare, measure, score, usual
from ddot.evaluation.metrics.sums import Difference, Sums, difference, interval

__all__ = [
    "METRICS",
    "Difference",
    "Fluency",
    "Measured",
    "Sums",
    "compare",
    "difference",
    "interval",
    "measure",
    "score",
    "usual",
]
