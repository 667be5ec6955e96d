"""``python -m poise``: the command line."""

from poise.apps.cli import main

if __name__ == "__main__":
    main()
