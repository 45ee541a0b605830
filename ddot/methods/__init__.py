"""DDOT and the methods it is compared with: prepare, loss, sample, read."""
