"""Many runs: demo, compare, ablate, tune, and what they share."""
