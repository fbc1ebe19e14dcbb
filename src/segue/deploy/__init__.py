"""Models outside their runs: load, predict, save, export."""
