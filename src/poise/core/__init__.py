"""Vectors, types, protocols, errors and the aggregation equation that the rest of poise uses."""
