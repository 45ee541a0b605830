"""DDOT and its rivals: prepare, loss, sample, read."""
