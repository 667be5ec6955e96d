"""What each client does: local solvers."""

from poise.solvers.sgd import SGD

__all__ = ["SGD"]
