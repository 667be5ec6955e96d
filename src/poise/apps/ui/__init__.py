"""The console: a web app that shows run folders and leaves running processes alone."""

from poise.apps.ui.app import create_app

__all__ = ["create_app"]
