"""Fixtures for every test."""

import jaxtyping
import pytest


@pytest.fixture
def unchecked():
    """Switches the run-time shape checks off, for tests of what a user without them is told."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
