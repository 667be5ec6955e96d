"""The JSON API: one router per subject. A new one is a line here."""

from fastapi import APIRouter

from poise.ui import live
from poise.ui.api import compare, figures, health, runs

ROUTERS: tuple[APIRouter, ...] = (runs.router, figures.router, compare.router, health.router, live.router)
