"""Trunks, the denoiser, 8-bit matrices, model folders, converters."""
