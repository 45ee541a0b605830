"""Trunks: token embeddings in, hidden vectors and logits out, with rotary positions that need not be integers."""
