"""Every form of every subcommand over a hostile log: text stays text, and is bounded."""

from __future__ import annotations

import pytest
from magics.test_subcommand_help_forms import EVERY, forms, kernel, prepare
from widgets.reports.hostile_logs import EVIL, SECRET, hostile, list_leaks

from ctxkit.errors import CtxkitError
from ctxkit.magics.session_settings_and_name_resolver import open_memory_store
from ctxkit.policies import make_entry

__all__ = ["kernel"]


def list_outputs(shell, capsys, line: str) -> dict[str, str]:
    """Run a line; return all forms in which a notebook and a terminal show what came of it."""
    capsys.readouterr()
    done = shell.run_cell(line)
    error = done.error_in_exec or done.error_before_exec
    if error is not None and not isinstance(error, CtxkitError):
        raise error
    out = {"printed": "".join(capsys.readouterr()), "error": str(error or "")}
    if error is None and done.result is not None:
        bundle, _ = shell.display_formatter.format(done.result)
        out |= {kind: str(data) for kind, data in bundle.items() if kind.startswith("text/")}
    return out


def run_over_hostile_log(shell, capsys, magic: str, name: str) -> dict[tuple[str, str], str]:
    """Run each form of a subcommand over a hostile session, beside a hostile entry of the memory; return each output
    by its line and kind."""
    report, out = prepare(shell), {}
    open_memory_store().add(make_entry("evil", EVIL, "user", EVIL))
    for number, line in enumerate(forms(magic, name, report)):
        prepare(shell)
        shell.user_ns["bad"] = hostile(text=f"{SECRET} {EVIL}")
        shell.run_line_magic("context", "use bad")
        asked = line.replace("NUMBER", str(number)).replace("--session main", "--session bad")
        for kind, text in list_outputs(shell, capsys, asked).items():
            out[asked, kind] = text
    return out


OUTPUTS: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
"""What the forms of a subcommand showed, by magic and subcommand: two tests look at some of it."""


@pytest.fixture
def outputs(request, magic, name):
    if (magic, name) not in OUTPUTS:
        shell, capsys = map(request.getfixturevalue, ("kernel", "capsys"))
        OUTPUTS[magic, name] = run_over_hostile_log(shell, capsys, magic, name)
    return OUTPUTS[magic, name]


@pytest.mark.parametrize(("magic", "name"), EVERY, ids=[" ".join(each) for each in EVERY])
def test_text_of_a_log_stays_text(outputs, magic, name):
    leaks = {at: list_leaks(text, html=at[1] == "text/html") for at, text in outputs.items()}
    assert not any(leaks.values()), leaks


@pytest.mark.parametrize(
    ("magic", "name"),
    [
        *(("context", name) for name in ("list", "detail", "turns", "compactions", "spend")),
        ("memory", "list"),
    ],
)
def test_what_is_hostile_is_what_is_shown(outputs, magic, name):
    pages = [text for (_, kind), text in outputs.items() if kind == "text/html"]
    assert any("&lt;/script&gt;&lt;script&gt;window.evil=1" in page for page in pages)
