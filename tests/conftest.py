"""Settings for all tests."""

from __future__ import annotations

import poise  # noqa: F401 - fixes MKL's code path before its first call
