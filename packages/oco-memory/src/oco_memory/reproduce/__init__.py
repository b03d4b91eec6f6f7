"""The experiments behind the claims; `paper` is what claimlab runs."""

from . import ablations, comparison, control, horizon, nonsmooth, plants, problems, smooth
from .paper import paper

__all__ = ["ablations", "comparison", "control", "horizon", "nonsmooth", "paper", "plants", "problems", "smooth"]
