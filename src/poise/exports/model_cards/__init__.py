"""Model cards: Markdown about a trained model, written from the ledgers of its runs."""

from poise.exports.model_cards.page import card, card_of
from poise.exports.model_cards.subject import CardOptions, Subject

__all__ = ["CardOptions", "Subject", "card", "card_of"]
