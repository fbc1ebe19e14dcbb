"""`segue serve`: a model behind HTTP, with a page to try it on. Needs the extra `serve`."""
