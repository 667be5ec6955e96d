"""The pages: one router per page. A new one is a line here, and one in `TABS` where it shows something of a run."""

from fastapi import APIRouter

from poise.ui.pages import assets, compare, run, runs, unlock

ROUTERS: tuple[APIRouter, ...] = (runs.router, run.router, compare.router, unlock.router, assets.router)

TABS: tuple[tuple[str, str], ...] = (("Run", "/run"),)
"""What there is to see of a run: name and address, which the name of the run follows."""
