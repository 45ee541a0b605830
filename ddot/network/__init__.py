"""Trunks, the denoiser, int8 weights, model folders, converters."""
