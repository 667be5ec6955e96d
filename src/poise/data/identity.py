"""What a federation is, as one hash."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from poise.data.federation_data import Federation


def digest_of(fed: Federation) -> str:
    """A hash of what the clients own: rows, labels, corruptions, importance, and the data set's
    name.

    Files of named data sets were compared with their checksums when they were read, so their bytes
    are not hashed again; those of arrays are.
    """
    pool = fed.source.train
    known = {k: v for k, v in (fed.spec or {}).items() if k not in ("partition", "seed")}
    text = json.dumps([fed.source.name, fed.source.notes, known], sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    digest.update(repr(fed.corruptions).encode())
    digest.update(fed.holdings.fingerprint())
    digest.update(np.ascontiguousarray(pool.labels.numpy()).data)
    digest.update(
        repr(fed.weighing).encode() if isinstance(fed.weighing, str) else fed.weighing.tobytes()
    )
    if fed.source.name == "arrays":
        digest.update(np.ascontiguousarray(pool.raw.numpy()).data)
    if fed.chosen is not None:
        digest.update(np.ascontiguousarray(fed.chosen).data)
    return digest.hexdigest()
