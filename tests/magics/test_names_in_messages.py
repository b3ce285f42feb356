"""A message quotes what the user or a log wrote, bounded, and offers the nearest name that there is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from builders import assistant, call, result, session, summarised, usage, user
from msgspec.structs import replace as struct_replace

from ctxkit.errors import CtxkitError
from ctxkit.magics.memory_commands import MEMORY_SUBCOMMANDS

LONG = "n" * 240
"""Longer than every bound, and short enough for the name of a file."""


def run(shell, cell: str):
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


def message(shell, cell: str) -> str:
    with pytest.raises(CtxkitError) as raised:
        run(shell, cell)
    return str(raised.value)


def assert_bounded(text: str, bound: int, head: str = "") -> None:
    """Check that a name of many `n` stands in a text in so many characters, an ellipsis the last."""
    shown = head + "n" * (bound - 1 - len(head))
    assert shown + "…" in text, (bound, text)
    assert shown + "n" not in text


def test_what_an_option_names_is_quoted_in_bounds(shell):
    Path(f"{LONG}.md").write_bytes(b"\xff" * 200_001)
    Path(f"{LONG}.json").write_text("{")
    shell.user_ns |= {LONG: 3, f"{LONG}b": " ", f"{LONG}u": {"url": "https://x"}}
    for option, bound, said in (
        (f"--attach {LONG}", 60, "the variable holds no picture"),
        (f"--attach {LONG}.png", 200, "no such file"),
        (f"--attach {LONG}.md", 200, "is no picture (PNG"),
        (f"--mcp {LONG}", 80, "names no server"),
        (f"--mcp {LONG}u", 80, "behind an address"),
        (f'--mcp "{LONG} \'y"', 80, "No closing quotation"),
        (f"--mcp {LONG}.json", 200, "is no JSON with mcpServers"),
        (f"--mcp {LONG}x.json", 200, "cannot be read"),
        (f"--via {LONG}", 80, "write acp:COMMAND"),
        (f"--memory {LONG}", 60, "There is no memory"),
        (f"--system {LONG}b", 60, "says nothing"),
        (f"--system {LONG}x.md", 200, "There is no file"),
        (f"--system {LONG}.md", 200, "has more than 200,000 bytes"),
    ):
        text = message(shell, f"%%agent {option}\nGo")
        assert said in text
        assert_bounded(text, bound)
    text = message(shell, f'%%agent --via "acp:\'{LONG}"\nGo')
    assert_bounded(text, 80, head="acp:'")
    Path(f"{LONG}.md").write_bytes(b"\xff")
    text = message(shell, f"%%agent --system {LONG}.md\nGo")
    assert "no text in UTF-8" in text
    assert_bounded(text, 200)
    assert not Path(".ctxkit").exists()
    assert_bounded(message(shell, f"%%agent --approve {LONG}\nGo"), 60)


def test_what_a_log_names_is_shown_in_bounds(shell):
    log = session(
        user("go"), call(LONG, id="c"), result("c", "x" * 4000, tool=LONG),
        assistant("done", model=LONG, usage=usage(300)), id=LONG, title=LONG,
    )  # fmt: skip
    shell.user_ns["long"] = log
    run(shell, "%context use long")
    status = run(shell, "%context")
    largest = [struct_replace(c, name=LONG) for c in status.report.contributors]
    report = struct_replace(status.report, title="", contributors=tuple(largest))
    for page in (repr(status), repr(replace(status, report=report))):  # as read, and as stored
        where = page.splitlines()[1].split(" · ")
        assert [where[0], where[2]] == ["n" * 59 + "…"] * 2
        assert page.endswith(f"  {'n' * 79}…")
    captions = re.findall("<table[^>]*>(<caption.*?</caption>)?", status._repr_html_())
    heading = next(row for row in repr(status).splitlines() if "largest messages" in row)
    assert captions == ["", f'<caption style="text-align:left">{heading}</caption>']
    table = run(shell, "%context sessions")
    assert table["title"].iloc[0] == "n" * 59 + "…"


def test_a_status_shortens_numbers_and_names_how_many_messages_are_largest(shell):
    shell.user_ns["log"] = session(user("go"), assistant("done"))
    run(shell, "%context use log")
    status = run(shell, "%context")
    for tokens, short in ((999, "999"), (1_000, "1k"), (999_499, "999k"), (999_500, "1.0M")):
        report = struct_replace(status.report, prompt_tokens=tokens)
        assert f"Context: {short}, window unknown" in replace(status, report=report).one_line
    few = status.report.contributors
    for n, heading in (
        (1, "the largest message"),
        (2, "the 2 largest messages"),
        (4, "the 3 largest messages"),
    ):
        report = struct_replace(status.report, contributors=few[:1] * n)
        assert heading in repr(replace(status, report=report)).splitlines()
        assert f">{heading}</caption>" in replace(status, report=report)._repr_html_()


def test_a_compaction_lists_the_messages_that_went_in_bounds(shell):
    run(shell, "%%agent\nWrite it")
    run(shell, "%%agent\nWrite it")
    done = run(shell, "%compact --keep 1")
    asked = call("read_file", id="c")
    gone = [user(LONG), asked, result("ok", asked), *(user(str(n)) for n in range(12))]
    many = replace(done, session=session(*gone, user("stays")), edits=(summarised(gone),))
    rows = [
        f"user: {'n' * 89}…",
        "assistant: read_file",
        "tool: read_file",
        *(f"user: {n}" for n in range(12)),
    ]
    assert many.removed_messages == rows
    assert repr(many).splitlines()[1:] == [*(f"  - {row}" for row in rows[:12]), "  ... and 3 more"]
    assert many._repr_html_().count("<li>") == 15
    crowd = [user(f"<{n}>") for n in range(201)]
    html = replace(done, session=session(*crowd), edits=(summarised(crowd),))._repr_html_()
    assert "<li>user: &lt;199&gt;</li></ul>" in html
    assert html.count("<li>") == 200
    twelve = replace(done, session=session(*gone[:12]), edits=(summarised(gone[:12]),))
    assert repr(twelve).splitlines()[1:] == [f"  - {row}" for row in rows[:12]]


@pytest.mark.parametrize("line", [
    "%%agent --attach ~nobody.here/x.png\nGo", "%%agent --system ~nobody.here/x.md\nGo",
    "%%agent --mcp ~nobody.here/x.json\nGo", "%%agent --root ~nobody.here/x\nGo",
    "%context use ~nobody.here/x.jsonl", "%context export ~nobody.here/x.html",
    "%context add ~nobody.here/x --name x",
])  # fmt: skip
def test_the_home_of_a_user_who_is_not_there_is_a_sentence(shell, line):
    shell.user_ns["log"] = session(user("go"), assistant("done"))
    run(shell, "%context use log")
    assert "~nobody.here/x" in message(shell, line)


def test_instructions_may_begin_with_a_tilde(shell):
    answer = run(shell, "%%agent --system '~5 sentences at most.'\nGo")
    assert answer.session.messages[0].text == "~5 sentences at most."


def test_many_pictures_may_be_named_in_one_option(shell):
    names = [f"{n}{LONG[:90]}.png" for n in range(3)]  # more characters than a file's name may have
    for name in names:
        Path(name).write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(8))
    answer = run(shell, f"%%agent --attach {','.join(names)}\nGo")
    assert len(answer.session.messages[0].parts) == 4


def test_the_nearest_name_is_offered(shell):
    run(shell, "%%agent --session tables\nGo")
    for line, named, offered in (
        ("%context turns --session tablez", "known: tables.", "tables"),
        ("%agent --session tablez", "begin one with `%%agent --session tablez`.", "tables"),
        ("%%agent --memory locla\nGo", "it is on, off, local, digest, model, or", "local"),
        ("%%agent --tools fils\nGo", "and functions of yours.", "files"),
        ("%memory lst", f"It knows: {', '.join(MEMORY_SUBCOMMANDS)}.", "list"),
    ):
        text = message(shell, line)
        assert named in text
        assert f"Did you mean '{offered}'?" in text


def test_names_that_the_help_hides_are_not_offered_as_known(shell):
    known = message(shell, "%context xyzzy").partition("It knows: ")[2].rstrip(".").split(", ")
    page = repr(run(shell, "%context -h")).splitlines()
    assert known == [row.split()[1] for row in page if row.startswith("  %context ")]
