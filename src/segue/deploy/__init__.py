"""Models outside their runs."""
