"""The command line."""

from poise.apps.cli.app import main

__all__ = ["main"]
