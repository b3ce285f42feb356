"""fuseraft's public files end as the table says. Its folder is not in this repository:

CTXKIT_FUSERAFT_FILES=~/fuseraft-cli pytest tests/outside/test_fuseraft_files.py
"""

from __future__ import annotations

import csv
import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GIVEN = os.environ.get("CTXKIT_FUSERAFT_FILES", "")
TABLE = ROOT / "docs/fuseraft_files.csv"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("runs", ROOT / "benchmarks/fuseraft_files.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows():
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.skipif(not GIVEN, reason="CTXKIT_FUSERAFT_FILES names no copy of fuseraft-cli")
def test_each_file_ends_as_the_table_says(script):
    folder = Path(GIVEN).resolve()
    runs = [script.run_file(path, folder) for path in script.find_files(folder)]
    told = {row["file"]: row for row in rows()}
    assert [run.file for run in runs] == [*told]
    for run in runs:
        assert {k: str(v) for k, v in run._asdict().items()} == told[run.file]


def test_a_folder_of_files_is_run_and_others_are_left(script, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/a.yaml").write_text(
        "Orchestration: {Agents: [{Name: A}], Termination: {MaxIterations: 1}, Saga: {}}\n"
    )
    (tmp_path / "suite.yaml").write_text("cases: []\n")
    (path,) = script.find_files(tmp_path)
    assert script.run_file(path, tmp_path) == (
        "config/a.yaml", "roundrobin", 1, 1, "stopped", "the team has had its 1 turns",
        "Saga (nothing is taken back).",
    )  # fmt: skip


def test_the_table_has_all_sixteen(script):
    ends = [row["ended"] for row in rows()]
    assert len(ends) == 16
    assert "refused" not in ends
