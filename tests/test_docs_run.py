"""What README and docs show is run, block by block, in a real IPython; what they say of it is held.

A block of `python` or `ipython` is run as a cell. A comment ``<!-- run ... -->`` is run where it stands and not shown: it
runs what the prose describes, and ``says(...)`` in it holds words and numbers: each must stand in the text above it.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
from magics.shells import new_shell

import ctxkit as ck
from ctxkit.formats import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN, SHOWN = ("python", "ipython"), ("sh", "py", "text")
"""Languages of blocks that are run, and of those that are only shown; `py` needs packages that `make test-peers` has."""
NEEDS = {"polars-and-duckdb.md": ("polars", "duckdb")}
"""Packages that a page is about; it is not run where they are missing."""
_PIECE = re.compile(
    r"^```(?P<language>\S*)\n(?P<block>.*?)^```$|^<!-- run\n(?P<hidden>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)


class Piece(NamedTuple):
    """Code of a page, and all visible text above its end, on one line."""

    language: str
    code: str
    above: str


def pieces(text: str) -> list[Piece]:
    out, above, at = [], "", 0
    for found in _PIECE.finditer(text):
        above += text[at : found.start()] + (found["block"] or "")
        at = found.end()
        out.append(
            Piece(
                found["language"] or "ipython",
                found["block"] or found["hidden"],
                " ".join(above.split()),
            )
        )
    return out


def run(page: list[Piece], given: dict) -> list[str]:
    """Run the pieces of a page in a new shell; return what went wrong."""
    shell, wrong, above = new_shell(), [], ""

    def says(*words: object) -> None:
        missing = [str(w) for w in words if str(w) not in above]
        assert not missing, f"the text does not say {missing}"

    shell.push({**given, "says": says})
    try:
        for piece in page:
            if piece.language in RUN:
                above = piece.above
                with warnings.catch_warnings():
                    warnings.simplefilter("error", UserWarning)
                    done = shell.run_cell(piece.code, store_history=False)
                if not done.success:
                    wrong.append(f"{piece.code}\n{done.error_before_exec or done.error_in_exec!r}")
    finally:
        shell.run_cell("%reload_ext ctxkit\n%unload_ext ctxkit", silent=True)
        type(shell).clear_instance()
    return wrong


# -- what the pages take for granted ---------------------------------------------------------------------------------


class Agent:
    """An agent of another framework: it calls LiteLLM, which answers by itself."""

    def run(self, prompt: str) -> None:
        import litellm

        litellm.completion(
            model="gpt-4o-mini", messages=[{"role": "user", "content": prompt}], mock_response="42"
        )


def given_to(page: Path, folder: Path) -> dict:
    """Make the files and return the names that the text of a page speaks of as the reader's own.

    The README speaks of none but the newest session: it is run in an empty folder.
    """
    (folder / "home").mkdir()
    if page.name == "README.md" and page.parent == ROOT:
        logs = folder / "home" / ".pi" / "agent" / "sessions" / "work"
        logs.mkdir(parents=True)
        ck.write(ck.read(ck.samples.path("billing")), logs / "one.jsonl", "pi")
        return {}
    sample = ck.samples.path("billing")
    shutil.copy(sample, folder / "session.jsonl")
    (folder / "settings.json").write_text(ck.presets.fased().to_config())
    (folder / "orchestration.yaml").write_text(ck.presets.fuseraft().to_config())
    agents = [
        {"Name": n, "ContextWindow": {"MaxTailMessages": 20}} for n in ("Developer", "Reviewer")
    ]
    team = {"Agents": agents, "Compaction": {"TriggerTurnCount": 40}}
    (folder / "team.yaml").write_text(json.dumps({"Orchestration": team}))
    own = {
        "configs.md": {"session": ck.read(sample)},
        "own-loop.md": {"agent": Agent()},
    }
    return own.get(page.name, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_block_of_a_page_runs_and_holds(page: Path, tmp_path: Path, monkeypatch):
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        registry, "_USER_READERS", {}
    )  # a page's own reader is none of other tests'
    found = pieces(page.read_text(encoding="utf-8"))
    assert {p.language for p in found} <= {*RUN, *SHOWN}, (
        "a block names its language, so that it is run"
    )
    if any(p.language in RUN for p in found):
        assert run(found, given_to(page, tmp_path)) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```python\n1 / 0\n```", "ZeroDivisionError"),
        ("```ipython\n%nonsense\n```", "UsageError|nonsense"),
        ("```ipython\n%load_ext ctxkit\n%context nonsense\n```", "nonsense"),
        ("```python\nimport warnings; warnings.warn('mind')\n```", "UserWarning"),
        ("It costs $4.\n\n<!-- run\nsays('$5')\n-->", "does not say"),
        ("<!-- run\nassert 1 == 2\n-->", "AssertionError"),
    ],
)
def test_what_does_not_hold_is_found(text: str, told: str, capsys):
    wrong = run(pieces(text), {})
    assert len(wrong) == 1
    assert re.search(told, wrong[0])
