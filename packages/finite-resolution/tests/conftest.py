"""The package is imported with its array annotations checked."""

from jaxtyping import install_import_hook

install_import_hook("finite_resolution", "beartype.beartype")
