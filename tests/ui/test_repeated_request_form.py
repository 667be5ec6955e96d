"""The form of the console: a request that is done names its certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

import poise
from faults.support import opened as opened_run
from faults.support import run_into
from poise.apps.ui.views.unlearning import RequestOptions, opened
from poise.core.errors import InvalidOption
from poise.unlearning.cost_preview import preview
from unlearning.test_interrupted_requests import EXPERIMENT


def test_the_cost_of_a_request_that_is_done_names_its_certificate(
    tmp_path: Path,
) -> None:
    run = run_into(EXPERIMENT, tmp_path)
    done = poise.unlearn(run, [1], target=2.0, min_rounds=2, max_rounds=3)
    form = {"clients": "1", "target": "2", "min_rounds": "2", "max_rounds": "3"}
    with opened_run(run) as training, opened(training) as histories:
        with pytest.raises(InvalidOption, match="fulfilled already") as told:
            RequestOptions.from_form(form).cost(training, histories)
        assert str(done.path) in told.value.hint
        other = RequestOptions.from_form({**form, "epsilon": "3"})
        with pytest.raises(InvalidOption, match="with epsilon = 10"):
            other.cost(training, histories)


def test_the_form_shows_the_cost_of_a_group(tmp_path: Path) -> None:
    run = run_into(EXPERIMENT, tmp_path)
    form = {"clients": "1,2", "guarantee": "group"}
    with opened_run(run) as training, opened(training) as histories:
        shown = RequestOptions.from_form(form).cost(training, histories)
        assert shown == preview(training, [1, 2], guarantee="group")
        assert list(shown.psi) == ["1, 2"]
