"""The report of a session: one file, nothing asked of a network, text of logs as text, no number made up."""

from __future__ import annotations

import re

import pytest
from builders import assistant, session, step, summarised, usage, user
from msgspec.structs import replace
from widgets.reports.hostile_logs import EVIL, hostile, intruders

import ctxkit as ck
from ctxkit import export
from ctxkit.errors import BadArguments
from ctxkit.session import Fault
from ctxkit.widgets.reports.html_page import encode_script_json


def words(path) -> str:
    """The text of a page without its scripts, styles and tags."""
    html = re.sub(
        r"<(script|style)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return re.sub(r"<[^>]+>", " ", html)


def body(path) -> str:
    """The page without plotly itself and without the data of charts."""
    return re.sub(
        r"<script>.*?</script>",
        "<script></script>",
        path.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )


@pytest.fixture
def story():
    a, b = user("find the queue"), assistant("it is fin-import-7", usage=usage(900, read=100))
    cut = summarised(
        [a, b], "Nothing yet.", tokens_before=1200, tokens_after=300, reason="too long"
    )
    return session(
        a, b, step(text="x" * 900), cut, assistant("done", usage=usage(400)), title="The queue"
    )


def test_the_page_has_its_title_its_figures_and_its_compaction(story, tmp_path):
    said = words(export(story, tmp_path / "r.html"))
    assert "The queue" in said
    assert "too long" in said
    assert "1,200" in said
    assert "Nothing yet." in said


def test_each_section_of_a_session_says_what_it_is_for(tmp_path):
    log = session(
        user("u" * 7_000), *step(text="x" * 900),
        assistant("done", usage=usage(4_000, output=5), model="claude-sonnet-4-5", time=2.0),
        skipped={"b": 1_200, "a": 1}, faults=(Fault(7, "no JSON"),), path_="C:\\logs\\a.jsonl",
    )  # fmt: skip
    page = body(export(log, tmp_path / "r.html"))
    found = dict(re.findall("<section><h2>(.*?)</h2>(.*?)</section>", page, re.DOTALL))
    assert list(found) == [
        "What this report rests on", "How the context grew", "What filled it",
        "Largest contributors at the last call", "Compactions", "Turns",
    ]  # fmt: skip
    assert re.findall("<li>(.*?)</li>", found["What this report rests on"])[3:] == [
        "Sizes of prompts are as the provider billed them.",
        "Cached and uncached input are recorded apart.",
        "Calls carry times.",
        "The messages carry their text.",
        "Costs are derived from usage and a table of prices.",
        (
            "System prompts and tool schemas that a log leaves out are a remainder: what was billed"
            " less what is seen."
        ),
        "The reader passed over records that hold no message: a (1), b (1,200).",
        "1 place could not be read (line 7: no JSON).",
    ]
    assert 'id="growth"' in found["How the context grew"]
    assert 'id="composition"' in found["What filled it"]
    largest = found["Largest contributors at the last call"]
    assert "4,000 tokens (recorded), 2 % of a window of 200,000 (derived)." in largest
    titles = re.findall("<summary>(.*?)</summary>", largest)
    assert titles[0].startswith("3,500 tokens (")
    assert [title.partition(" · ")[2] for title in titles][1:] == [
        "read_file",
        "asks for read_file",
    ]
    texts = re.findall('<pre tabindex="0">(.*?)</pre>', largest, re.DOTALL)
    assert texts[0] == "u" * 6_000 + "\n… the first 6,000 of 7,000 characters"
    assert texts[1:] == ["x" * 900, "read_file {}"]
    assert found["Compactions"] == "<p>None: the log holds no compaction.</p>"
    assert " · format native · read from a.jsonl · ctxkit " in page


def test_a_session_without_figures_says_each_of_them(tmp_path):
    page = body(export(session(user("hi"), assistant("ho")), tmp_path / "r.html"))
    lines = re.findall("<li>(.*?)</li>", page)
    assert lines[-6:] == [
        "The log has no usage: sizes of prompts are estimated from the text.",
        "The log does not tell cached from uncached input, so what the cache saved cannot be shown.",
        "The log has no times: pauses, and what they cost in the cache, cannot be seen.",
        "The messages carry their text.",
        "A cost is missing: at least one call has no usage, or its model no known price.",
        (
            "System prompts and tool schemas that a log leaves out are a remainder: what was billed"
            " less what is seen."
        ),
    ]


def test_the_page_asks_nothing_of_a_network(story, tmp_path):
    html = body(export(story, tmp_path / "r.html"))
    assert not re.findall(r"""(?:src|href)\s*=|url\(|@import""", html)
    assert "default-src 'none'" in html


def test_plotly_is_in_the_page_once(story, tmp_path):
    html = export(story, tmp_path / "r.html").read_text(encoding="utf-8")
    assert 4_000_000 < len(html) < 7_000_000


def test_what_the_log_cannot_say_comes_first_and_is_no_zero(tmp_path):
    bare = session(user("hi"), assistant("ho"))
    said = words(export(bare, tmp_path / "r.html"))
    assert said.index("has no usage") < said.index("How the context grew")
    assert "has no times" in said
    assert "$0" not in said


def test_a_session_without_calls_is_a_page_too(tmp_path):
    assert "no compaction" in words(export(session(user("hi")), tmp_path / "r.html"))
    assert "no compaction" in words(export(session(), tmp_path / "empty.html"))


def test_text_of_a_log_stays_text(tmp_path):
    html = body(export(hostile(), tmp_path / "r.html"))
    assert intruders(html, scripts=html.count("<script></script>")) == []
    assert "window.evil=1" in html  # it is there, as text


def test_text_of_a_log_cannot_end_a_script(tmp_path):
    html = export(hostile(), tmp_path / "r.html").read_text(encoding="utf-8")
    for script in re.findall(r"<script>(Plotly\.newPlot.*?)</script>", html, flags=re.DOTALL):
        assert "<" not in script
        assert script.endswith(")")
    assert encode_script_json(EVIL.encode("utf-8", "replace").decode()).count("<") == 0


def test_a_report_is_written_over_but_only_to_html(story, tmp_path):
    assert export(story, tmp_path / "r.html") == export(story, str(tmp_path / "r.html"))
    log = tmp_path / "session.jsonl"
    log.write_text("{}")
    with pytest.raises(BadArguments, match=r"ends in \.html"):
        export(story, log)
    assert log.read_text() == "{}"


def test_a_page_is_whole_or_the_old_one_is_untouched(story, tmp_path, monkeypatch):
    import os

    path = tmp_path / "r.html"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: export(story, path), lambda: ck.plots.growth(story).write_html(path),
                  lambda: ck.budget(story).write_html(path)):  # fmt: skip
        with pytest.raises(BadArguments, match="No space left"):
            write()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    monkeypatch.undo()
    fresh = export(story, tmp_path / "new.html")
    assert fresh.stat().st_mode & 0o044 == 0o666 & ~os.umask(os.umask(0)) & 0o044


def test_what_cannot_be_written_is_said_in_one_sentence(story, tmp_path):
    with pytest.raises(BadArguments, match="Choose a folder that exists"):
        export(story, tmp_path / "no" / "r.html")
    with pytest.raises(BadArguments, match="a list of messages, not int"):
        export(5, tmp_path / "r.html")


# -- A compaction of several edits is one in reports and tables.


def test_edits_of_one_compaction_share_its_number(tmp_path):
    a, b = user("find it"), assistant("found")
    first = replace(summarised([a], "one"), id="pi-0.0", source="derived")
    second = replace(summarised([b], "two"), id="pi-0.1", source="derived")
    s = session(a, b, first, second, assistant("done"))
    page = export(s, tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count("What compaction 0 wrote") == 2
    assert "What compaction 1 wrote" not in page
