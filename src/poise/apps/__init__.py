"""Ways in and out: command line, console, deployments, and experiments as files."""
