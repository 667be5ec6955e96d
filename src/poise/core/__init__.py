"""Vectors, types, protocols, errors and the equation that all of poise uses."""
