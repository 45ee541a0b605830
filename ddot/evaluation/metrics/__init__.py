"""Metrics of filled texts. `score` gives the numbers of a row; each metric by itself returns `Sums`.

sums.py       a metric as sums over items: confidence intervals, paired differences
words.py      on words: BLEU, NIST, success rate, exact match, length error, distinct n-grams
meteor.py     METEOR 1.5 (Java), and NLTK's under its own name
fluency.py    perplexity under a causal language model
scoring.py    several metrics of one set of texts, ROUGE of blanks and CodeBLEU too; differences between two sets
"""
