"""What the theory says of a composition, before anything is trained."""

from poise.explaining.constants import Constants, constants
from poise.explaining.explanation import Explanation, explain, explain_composition
from poise.explaining.remarks import Remark

__all__ = ["Constants", "Explanation", "Remark", "constants", "explain", "explain_composition"]
