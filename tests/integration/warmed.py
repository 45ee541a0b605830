"""Imported by the process the commands of `tiny` are forked from: all that takes long the first time, done once."""

import tempfile
from pathlib import Path

import torch
from tiny import tiny

from ddot.training.loop import train

torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as place:
    train(tiny("training.steps=1"), Path(place))
