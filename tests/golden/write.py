"""Write ``golden.json``: the results of all golden cases with the present code on this machine.

    python tests/golden/write.py            # all cases
    python tests/golden/write.py scaffold   # only the cases whose names contain a word

Do so only if results are meant to change, and say in the commit which results changed, and why. The
file also holds a fingerprint of how the machine rounds. To write only some cases, this machine must
have the same fingerprint.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from golden.cases import CASES
from golden.running import GOLDEN, fingerprint, outcome


def main(words: list[str]) -> None:
    """Run the cases that have stored results, and write the results."""
    known = json.loads(GOLDEN.read_text()) if words else {"cases": {}}
    if words and known["fingerprint"] != fingerprint():
        sys.exit(
            "this machine does not round like the one that wrote golden.json: write all cases"
        )
    named = [name for name, case in CASES.items() if not case.like]
    chosen = [
        name for name in named if not words or any(word in name for word in words)
    ]
    results = {name: outcome(name) for name in chosen}
    cases = {name: results.get(name) or known["cases"][name] for name in named}
    text = json.dumps({"fingerprint": fingerprint(), "cases": cases}, indent=1)
    GOLDEN.write_text(text + "\n")
    print(f"{len(chosen)} cases written to {GOLDEN.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
