"""Figures of moving slots and of measured rows."""
