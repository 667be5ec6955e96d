"""Run the command line with ``python -m poise``."""

from poise.apps.cli import main

if __name__ == "__main__":
    main()
