"""`with_limit`: a sampler that limits sensitivities gets the limit of its run."""

from __future__ import annotations

from poise.core.capabilities import LimitsSensitivity
from poise.core.errors import errors_at
from poise.core.protocols import Sampler
from poise.privacy.budget import Budget


def with_limit(
    sampler: Sampler, declared: Budget | None, default: Budget | None = None
) -> Sampler:
    """Return the sampler with its limit Psi*; other samplers stay as they are.

    Psi* is the smaller of the sampler's own limit and that of the declared budget. If
    there is neither, it is the limit of the default budget. Without that, the sampler
    stays as it is, and its ``fit`` raises.

    >>> from poise.samplers import Budgeted
    >>> with_limit(Budgeted(limit=0.5), Budget(epsilon=10, delta=0.01, sigma=0.05)).limit < 0.15
    True
    """
    if not isinstance(sampler, LimitsSensitivity):
        return sampler
    limits = [] if sampler.limit is None else [sampler.limit]
    with errors_at("sampler"):
        if sampler.guarantee:
            limits.append(Budget.of(sampler.guarantee).limit)
    if declared is not None:
        limits.append(declared.limit)
    elif default is not None and not limits:
        limits.append(default.limit)
    if not limits:
        return sampler
    return sampler.within(min(limits))
