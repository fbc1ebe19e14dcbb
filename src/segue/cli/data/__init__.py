"""Look at data before training: check, show, convert, fetch."""
