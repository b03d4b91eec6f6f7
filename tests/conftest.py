"""Every contract test runs for each package found in the checkout."""

from pathlib import Path

import pytest
from checkout import PACKAGES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "package" in metafunc.fixturenames:
        metafunc.parametrize("package", PACKAGES, ids=lambda p: p.slug, scope="session")


@pytest.fixture(scope="session")
def smoke_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One results folder for all smoke runs of this session."""
    return tmp_path_factory.mktemp("smoke results")
