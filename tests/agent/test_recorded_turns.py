"""The agent does in each scripted run what is written down of it, message by message and event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from agent.recorded_turns import FOLDER, RUNS, record_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_as_it_is_written_down(name: str, tmp_path: Path):
    wanted = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert record_run(name, tmp_path.resolve()) == wanted, (
        "if meant: PYTHONPATH=.:tests python tests/agent/recorded_turns.py"
    )


def test_no_run_is_written_down_that_is_gone():
    assert {p.stem for p in FOLDER.iterdir()} == set(RUNS)
