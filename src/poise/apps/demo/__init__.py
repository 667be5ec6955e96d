"""The story of ``poise demo``: six acts on one federation, as tables and as a page."""

from poise.apps.demo.act import Act
from poise.apps.demo.acts import ACTS, ActMaker
from poise.apps.demo.page import write_story
from poise.apps.demo.stage import DemoStopped, Stage

__all__ = ["ACTS", "Act", "ActMaker", "DemoStopped", "Stage", "write_story"]
