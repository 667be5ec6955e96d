"""The JSON API: one router per subject, listed here."""

from fastapi import APIRouter

from poise.apps.ui import live
from poise.apps.ui.api import (
    audit,
    clients,
    compare,
    figures,
    health,
    jobs,
    nodes,
    runs,
    unlearning,
)

ROUTERS: tuple[APIRouter, ...] = (
    runs.router,
    figures.router,
    compare.router,
    health.router,
    live.router,
    clients.router,
    unlearning.router,
    audit.router,
    jobs.router,
    nodes.router,
)
