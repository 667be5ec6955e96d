"""The pages: one router per page; the pages of a run are also listed in `TABS`."""

from fastapi import APIRouter

from poise.apps.ui.pages import (
    assets,
    audit,
    client,
    compare,
    federation,
    jobs,
    nodes,
    run,
    runs,
    unlearning,
    unlock,
)

ROUTERS: tuple[APIRouter, ...] = (
    runs.router,
    run.router,
    compare.router,
    client.router,
    federation.router,
    unlearning.router,
    audit.router,
    jobs.router,
    nodes.router,
    unlock.router,
    assets.router,
)

TABS: tuple[tuple[str, str], ...] = (
    ("Run", "/run"),
    ("Client", "/client"),
    ("Federation", "/federation"),
    ("Unlearning", "/unlearning"),
    ("Audit", "/audit"),
)
"""The pages of a run: title, and address without the name of the run."""
