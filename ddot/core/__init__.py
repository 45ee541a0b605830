"""The paper's mathematics: positions, couplings, the token process, sampling. No text, no layers, no files."""
