"""Runs one after the other in the processes torchrun started: `several_runs.py RUN SETTING… -- RUN SETTING…`."""

import sys
from itertools import groupby
from pathlib import Path

import torch.distributed
from tiny import tiny

from ddot.training.loop import train

if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    for separates, words in groupby(sys.argv[1:], lambda word: word == "--"):
        if not separates:
            output, *settings = words
            train(tiny(*settings), Path(output), resume=True)
    torch.distributed.destroy_process_group()
