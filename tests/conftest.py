"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

import poise  # noqa: F401 - fixes MKL's code path before its first call

settings.register_profile(
    "untimed", deadline=None
)  # how long an example takes says how busy the machine is
settings.load_profile("untimed")
