"""Vectors, types, protocols, the equation: what every other part of poise is built on."""
