"""Run fuseraft's public orchestration files with scripted agents, and write how each one ends.

    python benchmarks/fuseraft_files.py FOLDER

FOLDER is a copy of github.com/fuseraft/fuseraft-cli, which is not part of this repository. The
result is `docs/fuseraft_files.csv`, from which `docs/make_mission.py` makes a table.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import ctxkit as ck
from ctxkit.errors import CtxkitError
from ctxkit.presets.config_text_reading_and_writing import load_config

TABLE = Path(__file__).parents[1] / "docs" / "fuseraft_files.csv"
TOOLS, ALLOW = ("files", "shell", "document"), (".fuseraft",)


class FileRun(NamedTuple):
    """How the team of one file ended its run."""

    file: str
    selection: str
    agents: int
    turns: int
    ended: str
    why: str
    not_obeyed: str


def find_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold an orchestration of agents."""
    files = []
    for path in sorted(folder.rglob("*.yaml")):
        content, _ = load_config(path)
        orchestration = content.get("Orchestration")
        if isinstance(orchestration, dict) and orchestration.get("Agents"):
            files.append(path)
    return files


def run_file(path: Path, folder: Path) -> FileRun:
    """Run the team of a file on a task with the scripted model.

    Args:
        path: the file.
        folder: the copy of the repository.
    """
    name = path.relative_to(folder).as_posix()
    orchestration = load_config(path)[0]["Orchestration"]
    selection = str(orchestration.get("Selection", {}).get("Type", "roundrobin"))
    with tempfile.TemporaryDirectory() as session_folder:
        try:
            team = ck.team(path, model="scripted", folder=session_folder, tools=TOOLS, allow=ALLOW)
        except CtxkitError as error:
            return FileRun(
                name, selection, len(orchestration["Agents"]), 0, "refused", str(error), ""
            )
        with team:
            result = team.run("Do what the files of this project ask for.")
        notes = " ".join(team.notes)
    return FileRun(
        file=name,
        selection=selection,
        agents=len(team.plan.members),
        turns=result.turns,
        ended=result.ended,
        why=result.why,
        not_obeyed=notes.removeprefix("Not obeyed here, the weightiest first: "),
    )


def main(folder: Path) -> None:
    """Write the table."""
    runs = [run_file(path, folder) for path in find_files(folder)]
    with TABLE.open("w", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerows([FileRun._fields, *runs])


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
