"""Runs: recipes, the step loop, the iteration loop, evaluation, checkpoints."""
