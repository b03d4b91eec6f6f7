"""Tests of every package run with its array shapes checked: jaxtyping's import hook, with beartype."""

from pathlib import Path

from jaxtyping import install_import_hook

MODULES = sorted(p.parent.name for p in Path(__file__).parent.glob("packages/*/src/*/__init__.py"))

install_import_hook(MODULES, "beartype.beartype")
