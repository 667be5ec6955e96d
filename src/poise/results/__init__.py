"""The results of runs: read, export as tables, take the model out."""

from poise.results.loading import load
from poise.results.run import Run, open_run

__all__ = ["Run", "load", "open_run"]
