"""Options of runs and requests, and experiment files with line numbers in their errors."""
