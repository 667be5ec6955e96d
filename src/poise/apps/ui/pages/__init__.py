"""The pages: one router per page. A new one is a line here, and one in `TABS` where it shows
something of a run.
"""

from fastapi import APIRouter

from poise.apps.ui.pages import (
    assets,
    audit,
    client,
    compare,
    federation,
    jobs,
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
"""What there is to see of a run: name and address, which the name of the run follows."""
