"""CodeBLEU of Python programs, by the package that the paper used."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from ddot.version import extra

_CHILD = """
import json, sys
from codebleu import calc_codebleu
references, texts = json.load(sys.stdin)
json.dump(calc_codebleu(references, texts, "python"), sys.stdout)
"""


def code_bleu(references: Sequence[str], texts: Sequence[str]) -> float:
    """Corpus CodeBLEU in percent: BLEU, BLEU with keywords, syntax trees and data flow, a quarter each.

    Runs in a subprocess with a fixed hash seed: the package iterates over sets, and which data flows match depends on
    their order (±0.01 between runs, measured on 100 functions).
    """
    with extra("CodeBLEU", "metrics"):
        import codebleu  # noqa: F401
        import tree_sitter_python  # noqa: F401

    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHILD],  # -P: ignore a codebleu.py in the working folder
        input=json.dumps([list(references), list(texts)]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        raise ValueError(f"CodeBLEU failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    parts = json.loads(done.stdout)
    if not parts["dataflow_match_score"]:
        # The package takes "none matched" for "all matched": empty texts would score 25.
        raise ValueError("CodeBLEU is undefined here: no data flow of the references is found in the texts")
    return 100 * parts["codebleu"]
