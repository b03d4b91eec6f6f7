"""Every contract test runs for each package found in the checkout."""

from pathlib import Path

import pytest
from checkout import PACKAGES, Package


@pytest.fixture(scope="session", params=PACKAGES, ids=lambda package: package.slug)
def package(request: pytest.FixtureRequest) -> Package:
    return request.param


@pytest.fixture(scope="session")
def smoke_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One results folder for all smoke runs of this session."""
    return tmp_path_factory.mktemp("smoke results")
