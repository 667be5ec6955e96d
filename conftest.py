"""What can be collected without the extras."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("flwr") else ["src/poise/flower/replies.py", "src/poise/flower/strategies.py"]
