"""Configuration, recipes, batches, the loop, checkpoints."""
