"""Closed forms and bounds, returned as named terms."""

from poise.theory import free_riders

__all__ = ["free_riders"]
