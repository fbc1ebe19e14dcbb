"""One file per method; the file's name is the method's name."""

from segue.methods.base import About, Method, Setting, StepContext

__all__ = ["About", "Method", "Setting", "StepContext"]
