"""`Check`: one check of a certificate, and the comparison of tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One check of a certificate; ``problem`` is empty where the check passed."""

    label: str
    problem: str = ""


def difference(left: Any, right: Any) -> str:
    """Describe the first difference of two tables; empty where they are equal.

    >>> difference({"a": [1, 0.0]}, {"a": [1, -0.0]})
    'a: is 0.0, recomputed -0.0'
    """
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            if key not in left or key not in right:
                return f"{key} is missing"
            inside = difference(left[key], right[key])
            if inside:
                separator = ": " if isinstance(left[key], dict | list) else " "
                return f"{key}{separator}{inside}"
        return ""
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return next(filter(None, map(difference, left, right)), "")
    # 0.0 and -0.0, or 1 and True, are equal in Python but not in a certificate
    if type(left) is type(right) and json.dumps(left) == json.dumps(right):
        return ""
    return f"is {left}, recomputed {right}"


__all__ = ["Check", "difference"]
