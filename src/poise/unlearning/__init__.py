"""Certified client unlearning (IFU, SIFU), its baselines, and verifiable certificates.

`poise.unlearn` is the operation; this package holds its parts. Names load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poise.privacy.budget import Budget, UnlearningPlan
    from poise.privacy.gaussian import epsilon_at, privacy_curve, sensitivity_budget
    from poise.unlearning.cost_preview import preview
    from poise.unlearning.empirical_checks import examine
    from poise.unlearning.erasure import erase
    from poise.unlearning.groups import group_sensitivity
    from poise.unlearning.ledger_sensitivity import sensitivity
    from poise.unlearning.membership_inference import membership_auc
    from poise.unlearning.newton import newton_scrub
    from poise.unlearning.privacy_accounting import privacy_spent
    from poise.unlearning.relearning import rounds_to_relearn
    from poise.unlearning.verification import verify

_MODULES = {
    "Budget": "poise.privacy.budget",
    "UnlearningPlan": "poise.privacy.budget",
    "epsilon_at": "poise.privacy.gaussian",
    "erase": "poise.unlearning.erasure",
    "examine": "poise.unlearning.empirical_checks",
    "group_sensitivity": "poise.unlearning.groups",
    "membership_auc": "poise.unlearning.membership_inference",
    "newton_scrub": "poise.unlearning.newton",
    "preview": "poise.unlearning.cost_preview",
    "privacy_curve": "poise.privacy.gaussian",
    "privacy_spent": "poise.unlearning.privacy_accounting",
    "rounds_to_relearn": "poise.unlearning.relearning",
    "sensitivity": "poise.unlearning.ledger_sensitivity",
    "sensitivity_budget": "poise.privacy.gaussian",
    "verify": "poise.unlearning.verification",
}

__all__ = [
    "Budget",
    "UnlearningPlan",
    "epsilon_at",
    "erase",
    "examine",
    "group_sensitivity",
    "membership_auc",
    "newton_scrub",
    "preview",
    "privacy_curve",
    "privacy_spent",
    "rounds_to_relearn",
    "sensitivity",
    "sensitivity_budget",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'poise.unlearning' has no attribute {name!r}")
