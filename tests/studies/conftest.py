"""The published runs, where `CTXKIT_STUDIES` names them or they lie beside `CTXKIT_SESSIONS`."""

from __future__ import annotations

import pytest

from ctxkit.studies import runs
from ctxkit.studies.sources import COMPLEXITY_TRAP, folder


@pytest.fixture(scope="session")
def published():
    found = folder()
    if found is None:
        pytest.skip(
            "neither CTXKIT_STUDIES nor a folder beside CTXKIT_SESSIONS holds the published runs"
        )
    return found


@pytest.fixture(scope="session")
def trap(published):
    return runs.read(published / COMPLEXITY_TRAP)
