"""The digest of a federation."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from poise.data.federation_data import Federation


def digest_of(fed: Federation) -> str:
    """Hash the clients' rows, labels, corruptions and importance, and the data's name.

    The values of the user's own data are hashed as well, wherever they lie. Those of
    named data sets are not: poise compares their files with their checksums when it
    reads them.
    """
    pool = fed.source.train
    name = "arrays"
    known: dict[str, Any] = {}
    if not fed.source.own:
        name = fed.source.name
        known = {
            k: v for k, v in (fed.spec or {}).items() if k not in ("partition", "seed")
        }
    text = json.dumps([name, fed.source.notes, known], sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    digest.update(repr(fed.corruptions).encode())
    digest.update(fed.holdings.fingerprint())
    digest.update(np.ascontiguousarray(pool.labels.numpy()).data)
    if isinstance(fed.weighing, str):
        digest.update(repr(fed.weighing).encode())
    else:
        digest.update(fed.weighing.tobytes())
    if fed.source.own:
        for part in pool.pools:
            digest.update(np.ascontiguousarray(part.raw.numpy()).data)
    held_out = fed.source.test
    if fed.source.own and fed.spec is not None and held_out is not None:
        digest.update(np.ascontiguousarray(held_out.labels.numpy()).data)
        for part in held_out.pools:
            digest.update(np.ascontiguousarray(part.raw.numpy()).data)
    if fed.chosen is not None:
        digest.update(np.ascontiguousarray(fed.chosen).data)
    return digest.hexdigest()
