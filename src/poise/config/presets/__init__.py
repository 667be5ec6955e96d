"""Experiment files that ship with poise: the demo and the papers' experiments."""

from pathlib import Path

DEMO = Path(__file__).parent / "demo"
PAPERS = Path(__file__).parent / "papers"
