"""What moves and what was measured, drawn."""
