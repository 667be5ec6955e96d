"""Requests to forget: the tree of histories, certificates, and a form that says what a request
costs first.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from pydantic import model_validator
from starlette.responses import RedirectResponse, Response

from poise.apps.ui import actions, gather
from poise.apps.ui.models import Wish
from poise.apps.ui.pages.jobs import latest, to_actions
from poise.apps.ui.shared import ClientStateStore, Deployments, RunName, page
from poise.core.errors import LedgerError, PoiseError

router = APIRouter()


class WishForm(Wish):
    """The form: a request and, for runs of nodes, the deployment that they belong to."""

    to: str = ""

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, given: Any) -> Any:
        """A field that was left empty was not given."""
        return {k: v for k, v in given.items() if v != ""} if isinstance(given, dict) else given


@router.get("/unlearning/{name:path}")
def unlearning(
    request: Request, name: RunName, library: ClientStateStore, known: Deployments
) -> Response:
    """The page; with options of a request in the address, also what it would cost."""
    from poise.apps.ui.views import federation
    from poise.apps.ui.views import unlearning as views

    told, trouble = None, ""
    try:
        told = gather.unlearning_of(library, name)
    except LedgerError as error:
        trouble = str(error)
    given = dict(request.query_params)
    filled = {**views.Asked({}).form(), **((told and told.open) or {}), **given}
    cost, mistake = None, ""
    try:
        cost = gather.cost_of(library, name, views.Asked.of(given)) if given.get("method") else None
    except PoiseError as error:
        mistake = str(error)
    nodes = federation.on_nodes(library.read_summary(name).experiment)
    return page(
        request,
        "unlearning.html",
        name=name,
        here="/unlearning",
        told=told,
        trouble=trouble,
        filled=filled,
        cost=cost,
        mistake=mistake,
        asked={k: v for k, v in given.items() if v},
        nodes=nodes,
        deployments=known,
        fields=views.form_fields(told.budget if told else None),
        jobs=latest(library, name, "unlearn", "verify"),
    )


@router.post("/unlearning/{name:path}")
def forget(
    name: RunName, library: ClientStateStore, known: Deployments, wish: Annotated[WishForm, Form()]
) -> RedirectResponse:
    """Honour the request that the page showed the cost of."""
    from poise.apps.ui.views.unlearning import Asked

    asked = Asked.wished(wish.model_dump(exclude={"to"}))
    actions.forget(library, name, asked, gather.deployment_named(known, wish.to))
    return to_actions("/unlearning", name)


@router.post("/verification/{request}/{name:path}")
def verify(request: int, name: RunName, library: ClientStateStore) -> RedirectResponse:
    """Verify a certificate."""
    actions.verify(library, name, request)
    return to_actions("/unlearning", name)
