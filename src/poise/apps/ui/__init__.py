"""The console: what ledgers hold, in a browser. It reads run folders and never touches a process
that writes them.
"""

from poise.apps.ui.app import create_app

__all__ = ["create_app"]
