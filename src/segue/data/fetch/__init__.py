"""Getting data sets: where they come from, downloading, unpacking."""
