"""The paper's experiments, judged by `claims.toml`."""

from . import costs, image, parameters, real_text, text, text_figures
from .declaration import paper

__all__ = ["costs", "image", "paper", "parameters", "real_text", "text", "text_figures"]
