"""Every command over a hostile log, in each of its forms of output: text stays text, and is bounded."""

from __future__ import annotations

import shutil

import pytest
from cli.command_runner import run_in_this_process
from widgets.reports.hostile_logs import EVIL, SECRET, hostile, list_leaks

import ctxkit as ck
from ctxkit.cli.app import COMMAND_MODULES, app

WORDS = {
    "when": ["LOG"],
    "idle": ["LOG"],
    "limits": ["LOG"],
    "card": ["LOG", "card.html"],
    "rules": ["LOG"],
    "exam": ["LOG", "--questions", "3"],
    "forecasts": ["LOGS", "--add", "recorded"],
    "list": ["LOGS"],
    "report": ["LOG"],
    "spend": ["LOGS"],
    "compare": ["LOG", "--rules", "pi"],
    "sweep": ["LOG", "--rules", "none"],
    "advise": ["LOG", "--rules", "pi"],
    "convert": ["LOG", "copy.jsonl"],
    "watch": ["LOG", "--times", "1"],
    "keep": ["kept"],
    "gate": ["LOG", "--rules", "pi", "--baseline", "baseline.json", "--update"],
    "demo": ["shown"],
    "doctor": [],
    "completion": ["bash"],
}
"""What each command is called with; LOG is the hostile log and LOGS its folder."""
OUTPUTS = {
    name: {o for p in app.get_command(None, name).params for o in p.opts}
    for name in COMMAND_MODULES
}
FORMS = [
    (name, form)
    for name in COMMAND_MODULES
    for form in ("", "--json", "--html")
    if not form or form in OUTPUTS[name]
]


def test_every_command_is_called():
    assert set(WORDS) == set(COMMAND_MODULES)


def run_command(home, name: str, form: str, text: str) -> tuple[list[str], list[str]]:
    """Run a command over a log full of a text; return what leaks into its words, and into its page."""
    log = home / "logs/evil.jsonl"
    shutil.rmtree(log.parent, ignore_errors=True)
    log.parent.mkdir()
    ck.write(hostile(text=text), log)
    places = {"LOG": str(log), "LOGS": str(log.parent)}
    words = [places.get(word, word) for word in WORDS[name]]
    page = ["--html", "page.html"] if form == "--html" else [form] * bool(form)
    done = run_in_this_process(home, name, *words, *page)
    assert done.returncode in {0, 1} or done.stderr.startswith("ctxkit: "), done.stderr
    page = home / "page.html"
    assert done.stderr.endswith("written: page.html\n") == (
        form == "--html" and done.returncode < 2
    )
    html = page.read_text(encoding="utf-8") if page.exists() else ""
    return list_leaks(done.stdout) + list_leaks(done.stderr), list_leaks(html, html=True)


@pytest.mark.parametrize(("name", "form"), FORMS, ids=[" ".join(f).strip() for f in FORMS])
def test_text_of_a_log_stays_text(home, name, form):
    words, page = run_command(home, name, form, f"{SECRET} {EVIL}")
    assert words == []
    if form == "--html":  # a page has scripts of its own
        (home / "page.html").unlink(missing_ok=True)
        assert page == run_command(home, name, form, "harmless words")[1]
