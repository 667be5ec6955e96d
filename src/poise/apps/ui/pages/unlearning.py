"""The unlearning page: restart tree, certificates, and a form that shows the cost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import model_validator
from starlette.responses import RedirectResponse, Response

from poise.analysis.reports.unlearning_page import REQUEST_NOTE
from poise.apps.ui import actions, gather
from poise.apps.ui.models import RequestBody
from poise.apps.ui.pages.jobs import latest, to_actions
from poise.apps.ui.shared import Deployments, RunLibrary, RunName, page
from poise.core.errors import LedgerError, PoiseError

router = APIRouter()


class RequestFormData(RequestBody):
    """The submitted form: a request and, for runs of nodes, the deployment."""

    to: str = ""

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, given: object) -> object:
        """Drop empty fields."""
        if isinstance(given, dict):
            return {k: v for k, v in given.items() if v != ""}
        return given


@router.get("/unlearning/{name:path}")
def unlearning(
    request: Request, name: RunName, library: RunLibrary, known: Deployments
) -> Response:
    """The page; with a request's options in the query, also the cost of the request."""
    from poise.apps.ui.views import federation
    from poise.apps.ui.views import unlearning as views

    unlearning_data = None
    budget = None
    trouble = ""
    try:
        unlearning_data = gather.unlearning_of(library, name)
        budget = unlearning_data.budget
    except LedgerError as error:
        trouble = str(error)
    given = dict(request.query_params)
    filled = views.RequestOptions({}).form()
    if unlearning_data is not None and unlearning_data.open is not None:
        filled |= unlearning_data.open
    filled |= given
    cost = None
    mistake = ""
    status = 200
    if given.get("method"):
        try:
            options = views.RequestOptions.from_form(given)
            cost = gather.cost_of(library, name, options)
        except PoiseError as error:
            mistake = str(error)
            if not given.get("clients", "").strip():
                status = 422
    nodes = federation.on_nodes(library.read_summary(name).experiment)
    return page(
        request,
        "unlearning.html",
        status,
        name=name,
        here="/unlearning",
        unlearning=unlearning_data,
        trouble=trouble,
        filled=filled,
        cost=cost,
        mistake=mistake,
        asked={k: v for k, v in given.items() if v},
        nodes=nodes,
        deployments=known,
        note=REQUEST_NOTE,
        heuristic=views.ENTRIES["heuristic"].label,
        fields=views.form_fields(budget),
        jobs=latest(library, name, "unlearn", "verify"),
    )


@router.post("/unlearning/{name:path}")
def unlearn(
    name: RunName,
    library: RunLibrary,
    known: Deployments,
    form: Annotated[RequestFormData, Form()],
) -> RedirectResponse:
    """Start the request whose cost the page showed."""
    from poise.apps.ui.views.unlearning import RequestOptions

    options = RequestOptions.from_api(form.model_dump(exclude={"to"}))
    deployment = gather.deployment_named(known, form.to)
    actions.unlearn(library, name, options, deployment=deployment)
    return to_actions("/unlearning", name)


@router.post("/verification/{request}/{name:path}")
def verify(request: int, name: RunName, library: RunLibrary) -> RedirectResponse:
    """Verify a certificate."""
    actions.verify(library, name, request)
    return to_actions("/unlearning", name)
