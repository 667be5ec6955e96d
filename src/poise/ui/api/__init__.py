"""The JSON API: one router per subject. A new one is a line here."""

from fastapi import APIRouter

from poise.ui.api import runs

ROUTERS: tuple[APIRouter, ...] = (runs.router,)
