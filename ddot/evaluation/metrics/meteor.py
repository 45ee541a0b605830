"""METEOR 1.5 (the authors' Java program) and NLTK's METEOR, which is a different metric."""

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np
from jaxtyping import Float

from ddot.evaluation.metrics.sums import Sums, mean
from ddot.evaluation.metrics.words import Words
from ddot.version import extra, install_command

# The program's defaults for English (`-l en`, task "rank").
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_MATCHERS = np.array([1.0, 0.6, 0.8, 0.6])  # exact, stem, synonym, paraphrase
_FIELDS = 23  # statistics per text
_DEBIAN = Path("/usr/share/wordnet")


def meteor(references: Sequence[Words], texts: Sequence[Words]) -> Sums:
    """Corpus METEOR 1.5, English, in percent. Java takes about 10 s to start."""
    java, jar = shutil.which("java"), _jar()
    if java is None:
        raise ValueError("METEOR 1.5 is a Java program and `java` is not on the PATH; install a Java runtime")
    command = [java, "-Xmx2G", "-jar", jar.name, "-", "-", "-stdio", "-l", "en", "-norm"]
    lines = [f"SCORE ||| {_line(r)} ||| {_line(t)}\n" for r, t in zip(references, texts, strict=True)]
    done = subprocess.run(command, input="".join(lines).encode(), capture_output=True, cwd=jar.parent)
    try:
        fields = [[float(field) for field in line.split()] for line in done.stdout.decode().splitlines()]
    except ValueError:
        fields = []
    if len(fields) != len(lines) or any(len(row) != _FIELDS for row in fields):
        output = (done.stderr.decode(errors="replace") or done.stdout.decode(errors="replace")).strip().splitlines()
        raise ValueError(f"METEOR 1.5 gave no statistics; Java said: {(output or ['nothing'])[-1]}")
    return meteor_sums(np.array(fields, float).reshape(-1, _FIELDS))


def _jar() -> Path:
    """The program, which needs its data beside it."""
    spec = find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"METEOR 1.5 needs the package pycocoevalcap; {install_command('meteor')}")
    folder = Path(spec.submodule_search_locations[0]) / "meteor"
    for file in (folder / "meteor-1.5.jar", folder / "data" / "paraphrase-en.gz"):
        if not file.is_file():
            raise ValueError(f"METEOR 1.5 needs {file}, which is missing; pip install --force-reinstall pycocoevalcap")
    return folder / "meteor-1.5.jar"


def _line(words: Words) -> str:
    """One line of text without the program's separator."""
    return " ".join(" ".join(words).replace("|||", " ").split())


def meteor_sums(fields: Float[np.ndarray, "items 23"]) -> Sums:
    """METEOR from the program's statistics of each text: words of text and reference, function words of both; for each
    matcher, content words matched in text and reference, function words matched in both; chunks; words matched in both.
    """
    lengths, matched = fields[:, :4], fields[:, 4:20].reshape(-1, 4, 4)
    # Content words weigh δ, function words 1 − δ.
    totals = _DELTA * (lengths[:, :2] - lengths[:, 2:]) + (1 - _DELTA) * lengths[:, 2:]
    matches = _MATCHERS @ (_DELTA * matched[:, :, :2] + (1 - _DELTA) * matched[:, :, 2:])
    chunks, words = fields[:, 20], fields[:, 21:]
    # The program counts a text that matches in full and in order as zero chunks, not one.
    whole = (chunks == 1) & (words == lengths[:, :2]).all(1)
    return Sums(np.column_stack([totals, matches, np.where(whole, 0, chunks), words.mean(1)]), _meteor)


def _meteor(sums: Float[np.ndarray, "6"]) -> float:
    text, reference, text_matches, reference_matches, chunks, words = sums.tolist()
    if not words:
        return 0.0
    precision, recall = text_matches / text, reference_matches / reference
    f_mean = precision * recall / (_ALPHA * precision + (1 - _ALPHA) * recall)
    return 100 * f_mean * (1 - _GAMMA * (chunks / words) ** _BETA)


def meteor_nltk(references: Sequence[Words], texts: Sequence[Words]) -> Sums:
    """Mean of NLTK's METEOR over texts, in percent. Synonyms come from WordNet 3.0, NLTK's copy or Debian's."""
    with extra("NLTK's METEOR", "metrics"):
        from nltk.translate.meteor_score import meteor_score

    wordnet = _wordnet()
    scores = (meteor_score([list(r)], list(t), wordnet=wordnet) for r, t in zip(references, texts, strict=True))
    return mean([100 * score for score in scores])


def _wordnet() -> Any:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        if not _DEBIAN.is_dir():
            raise ValueError(
                "NLTK's METEOR needs WordNet, which is missing; run python -m nltk.downloader wordnet, set NLTK_DATA "
                "to where it is, or install Debian's package wordnet-base"
            ) from None
        return _debian(_DEBIAN)
    return wordnet


@cache
def _debian(folder: Path) -> Any:
    import nltk
    from nltk.corpus.reader import WordNetCorpusReader

    class Reader(WordNetCorpusReader):
        """Debian's package lacks topic names and the sense index, which synonyms do not need."""

        def open(self, file: str) -> Any:
            return StringIO("".join(f"{i:02} - -\n" for i in range(45))) if file == "lexnames" else super().open(file)

        def map_wn(self, version: str = "wordnet") -> None:
            """Do not map to other versions."""

    nltk.data.path.append(str(folder))  # NLTK opens files on its path only
    with catch_warnings(action="ignore"):  # "multilingual functions are not available"
        return Reader(str(folder), None)
