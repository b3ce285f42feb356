"""Writes down, where CTXKIT_ENGINES_TABLE names a file, what the programs decided beside the presets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from engines.external_programs import TABLE, packages


@pytest.fixture(scope="session")
def engines() -> Path:
    """The folder of the installed programs; skips where there is none."""
    found = packages()
    if found is None:
        pytest.skip("CTXKIT_ENGINES names no folder of installed programs: make test-engines")
    return found


def pytest_sessionfinish() -> None:
    target = os.environ.get("CTXKIT_ENGINES_TABLE")
    if target and TABLE:
        Path(target).write_text(json.dumps(TABLE, indent=1) + "\n", encoding="utf-8")
