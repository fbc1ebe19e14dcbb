"""Before a run: is the data ready, and what will the run need."""
