"""Experiment files: run them over seeds, explain them, and reproduce papers."""
