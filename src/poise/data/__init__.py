"""Federated data: sources, partitions, populations on demand, corruptions and data files."""

from poise.data.federation import federation
from poise.data.federation_data import Federation
from poise.data.fetch import fetch, listing, verify
from poise.data.sources.images import public_mean

__all__ = ["Federation", "federation", "fetch", "listing", "public_mean", "verify"]
