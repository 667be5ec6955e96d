"""The similarity graph of a federation: how different its clients' data are."""

from poise.graph.alteration import (
    absolute_deviation,
    absolute_deviation_bounds,
    probability_less_homogeneous,
    squared_deviation,
    squared_deviation_bounds,
)
from poise.graph.principal import message, message_of, messages
from poise.graph.similarity import SimilarityGraph, similarity

__all__ = [
    "SimilarityGraph",
    "absolute_deviation",
    "absolute_deviation_bounds",
    "message",
    "message_of",
    "messages",
    "probability_less_homogeneous",
    "similarity",
    "squared_deviation",
    "squared_deviation_bounds",
]
