"""Experiments as files: checked, run over seeds, taken up again."""
