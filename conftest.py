"""What can be collected without the extras."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("flwr") else ["src/poise/flower/replies.py", "src/poise/flower/strategies.py"]
collect_ignore_glob = [] if find_spec("fastapi") and find_spec("jinja2") else ["src/poise/ui/*", "tests/ui/*"]
