"""The published runs, where `CTXKIT_STUDIES` names them or they are beside `CTXKIT_SESSIONS`."""

from __future__ import annotations

import pytest

from ctxkit import studies


@pytest.fixture(scope="session")
def published():
    found = studies.published_runs_and_tables.find_studies_folder()
    if found is None:
        pytest.skip(
            "neither CTXKIT_STUDIES nor a folder beside CTXKIT_SESSIONS holds the published runs"
        )
    return found


@pytest.fixture(scope="session")
def trap(published):
    return studies.published_runs_and_tables.read_published_runs(
        published / studies.published_runs_and_tables.COMPLEXITY_TRAP
    )
