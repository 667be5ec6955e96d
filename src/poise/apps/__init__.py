"""Ways in and out: the command line, the console, deployments, and experiments as files."""
