"""One file per method; the file's name is the method's name. What they are is in `base`."""
