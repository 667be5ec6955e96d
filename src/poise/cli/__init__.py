"""The command line."""

from poise.cli.app import main

__all__ = ["main"]
