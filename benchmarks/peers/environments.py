"""Make the environments of the peers: each installed by its released package, with the versions of
``requirements``.

python benchmarks/peers/environments.py [NAME …]

poise, the plain loop and the lower bound run in the environment of the driver.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def make(name: str) -> None:
    """The environment of a peer, anew where its requirements have changed."""
    wanted = HERE / "requirements" / f"{name}.txt"
    folder = HERE / ".envs" / name
    ready = folder / "ready.txt"
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted.read_text(
        encoding="utf-8"
    ):
        return
    print(f"installing {name} into {folder.relative_to(HERE)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "-r", str(wanted)], check=True)
    ready.write_text(wanted.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    for peer in sys.argv[1:] or sorted(
        file.stem for file in (HERE / "requirements").glob("*.txt")
    ):
        make(peer)
