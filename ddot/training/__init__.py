"""Configuration, recipes, batches, the loop, the run folder."""
