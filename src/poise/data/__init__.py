"""Federated data: sources, partitions, populations on demand, corruptions, and the files they come from."""

from poise.data.federated import Federation
from poise.data.federation import federation
from poise.data.fetch import fetch, listing, verify

__all__ = ["Federation", "federation", "fetch", "listing", "verify"]
