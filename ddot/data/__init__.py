"""Text ↔ ids: tokenizers, sources of text, packed shards, masks."""
