"""Manifests: which images train which step, as a file."""
