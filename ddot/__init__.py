"""Fill blanks of unknown length: tokens and continuous positions, denoised together."""

__version__ = "0.1.0"
