"""Write the descriptions of poise's parts anew: what ``poise list`` shows.

python tools/catalogue.py
"""

from __future__ import annotations

import json

from poise.apps.cli.catalogue import parts_by_slot
from poise.apps.cli.listing import CATALOGUE


def main() -> None:
    """Write the file."""
    CATALOGUE.write_text(text(), encoding="utf-8")


def text() -> str:
    """Return the descriptions as JSON, one part per line, so that changes merge."""
    slots = []
    for slot, rows in parts_by_slot().items():
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
        slots.append(f"{json.dumps(slot)}: [\n{lines}\n ]")
    return "{\n " + ",\n ".join(slots) + "\n}\n"


if __name__ == "__main__":
    main()
