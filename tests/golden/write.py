"""Writes ``golden.json`` anew: what every golden case gives with the code as it is, on this
machine.

    python tests/golden/write.py            # all cases
    python tests/golden/write.py scaffold   # the cases whose names contain a word; the others stay
    as they are

Do so only where results are meant to change, and say in the commit which and why. The file holds,
beside the outcomes, a fingerprint of how the machine rounds; with words given, it must be the one
in the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from golden.cases import CASES
from golden.running import GOLDEN, fingerprint, outcome


def main(words: list[str]) -> None:
    """Run the cases that have values of their own and write down what came of them."""
    known = json.loads(GOLDEN.read_text()) if words else {"cases": {}}
    if words and known["fingerprint"] != fingerprint():
        sys.exit(
            "this machine rounds otherwise than the one that wrote golden.json: write all cases"
        )
    named = [name for name, case in CASES.items() if not case.like]
    chosen = [name for name in named if not words or any(word in name for word in words)]
    found = {name: outcome(name) for name in chosen}
    cases = {name: found.get(name) or known["cases"][name] for name in named}
    text = json.dumps({"fingerprint": fingerprint(), "cases": cases}, indent=1)
    GOLDEN.write_text(text + "\n")
    print(f"{len(chosen)} cases written to {GOLDEN.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
