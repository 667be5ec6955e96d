"""Options of runs and requests; experiment files with line numbers in errors."""
