"""Contracts that anyone can run: `check_method` for a method, `check_network` for a network."""

from segue.testing.methods import (
    CHECKS,
    CPU,
    OPTIM,
    TRAIN,
    Bench,
    check_method,
    check_predictions,
)
from segue.testing.networks import check_network

__all__ = ["CHECKS", "CPU", "OPTIM", "TRAIN", "Bench", "check_method", "check_network", "check_predictions"]
