"""No key that an agent says while it runs reaches the screen, a saved notebook or a file."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from outside.leaking_acp_agent import PLACES, planted_key

from ctxkit.errors import ModelError

PROGRAM = Path(__file__).parents[1] / "outside" / "leaking_acp_agent.py"


def command(place: str) -> str:
    return f'acp:{sys.executable} {PROGRAM} "{place}"'


def cell(place: str) -> str:
    return f"%%agent --via '{command(place)}'\nGo"


def is_clean(text: str, key: str) -> bool:
    """True where no eight characters in a row of a key are there."""
    return not any(key[i : i + 8] in text for i in range(len(key) - 7))


@pytest.mark.parametrize("place", PLACES)
def test_what_an_agent_of_another_program_says_is_shown_and_kept_without_keys(
    shell, capsys, tmp_path, place
):
    key, heard, shown = planted_key(place), [], ""
    done = shell.run_cell(cell(place))
    live = shell.magics_manager.registry["CtxKit"].lives.get("main")
    if place in ("error", "login", "version", "death"):
        assert isinstance(done.error_in_exec, ModelError)
        shown = str(done.error_in_exec)
    else:
        shown = f"{done.result!r}{done.result._repr_html_()}{done.result.text}{done.result.outcome}"
        live.listen(lambda event: heard.append(repr(event)))
        again = shell.run_cell(cell(place))
        shown += repr(again.result)
    printed = capsys.readouterr()
    assert is_clean(shown + printed.out + printed.err, key)
    assert is_clean("".join(heard), key)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert any(p.name == "main.jsonl" for p in files)
    assert [p for p in files if not is_clean(p.read_text(), key)] == []
    said = place not in ("plan", "kind", "tool name", "id", "version")
    assert ("[redacted]" in shown + printed.out + "".join(p.read_text() for p in files)) or not said


@pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")
def test_a_saved_notebook_holds_no_key_that_an_agent_said(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    places = ("text", "coloured text", "text around an event", "thought", "input", "output")
    cells = [
        nbformat.v4.new_code_cell(cell(place).replace("--via", f"--session s{i} --via"))
        for i, place in enumerate(places)
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%load_ext ctxkit"), *cells])
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    saved = nbformat.writes(book)
    assert [place for place in places if not is_clean(saved, planted_key(place))] == []
    assert "The key is [redacted] today." in saved
