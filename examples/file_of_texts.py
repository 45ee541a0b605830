"""A file of texts: JSON lines in, JSON lines out, in order; a run that was stopped resumes."""

import json
import tempfile
from pathlib import Path

import ddot
from ddot.infill.jsonl import fill_file

with tempfile.TemporaryDirectory() as folder:
    source, output = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
    texts = ["I like ___.", "It was ___{2} in the garden.", "a line without a gap"]
    source.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)))
    summary = fill_file(ddot.load(threads=2), source, output, ddot.Settings(steps=8))
    print(output.read_text(), summary)
