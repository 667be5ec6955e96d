"""Statements about runs: `explain` before a run, `reports` after it."""
