"""The console: a web app that shows run folders and never interferes with running processes."""

from poise.apps.ui.app import create_app

__all__ = ["create_app"]
