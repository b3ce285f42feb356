"""The explorer: what it shows at a call, what it answers to the browser; its twins; text of logs as text."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING

import pytest
from builders import assistant, session, step, summarised, usage, user
from msgspec.structs import replace
from waiting import PATIENCE
from widgets.reports.hostile_logs import hostile, intruders

import ctxkit as ck
from ctxkit import explore
from ctxkit.errors import BadArguments
from ctxkit.widgets import explorer_messages_and_search as explorer_model
from ctxkit.widgets.explorer_messages_and_search import MAX_TEXT_CHARS, search_texts
from ctxkit.widgets.python_to_javascript import ROWS_PER_CHUNK

if TYPE_CHECKING:
    from ctxkit.widgets import Explorer


@pytest.fixture
def story():
    a, b = user("first words"), assistant("found", usage=usage(50))
    return session(
        a, b, step(text="long " * 300), summarised([a, b]), assistant("done", usage=usage(700))
    )


def rows(shown: Explorer, **asked) -> dict:
    found = shown._answer_or_error(
        {"kind": "rows", "call": shown.call, "from": 0, "key": "k", **asked}
    )
    assert found["key"] == "k"
    return found


def words(shown: Explorer, **asked) -> list[str]:
    return [row[4] for row in rows(shown, **asked)["rows"]]


def text(shown: Explorer, row: int, **asked) -> dict:
    return shown._answer_or_error({"kind": "text", "call": shown.call, "row": row, **asked})


def test_it_opens_at_the_last_call_with_the_largest_message_first(story):
    shown = explore(story)
    assert shown.call == 2
    first = shown.data["first"]
    assert first["rows"][0][4].startswith("long long")
    assert "700 tokens" in first["head"]["told"]
    assert "long long" in text(shown, first["rows"][0][0])["text"]


def test_a_call_shows_what_it_was_sent(story):
    shown = explore(story)
    shown.call = 0
    assert [i.message for i in shown.call_view.items] == list(story.view(0))
    assert words(shown) == ["first words"]


def test_a_call_can_be_set_from_its_end_and_must_be_there(story):
    shown = explore(story, call=0)
    shown.call = -1
    assert shown.call == 2
    with pytest.raises(BadArguments, match="calls 0 to 2"):
        shown.call = 3
    for call in (3, -4):
        with pytest.raises(BadArguments, match="calls 0 to 2"):
            explore(story, call=call)


def test_the_groups_and_the_remainder_sum_up_to_the_recorded_prompt(story):
    scene = ck.explore(story).explorer_session.at(2)
    assert sum(n for _, n in scene.groups) == scene.tokens == 700


def test_a_call_without_usage_has_the_size_of_its_parts():
    billed = assistant("y", usage=usage(100))
    view = explore(session(user("x" * 400), billed, user("z" * 40), assistant("w"))).call_view
    assert (view.call, len(view.items)) == (1, 3)
    assert view.tokens == sum(n for _, n in view.groups) > 100
    assert view.source == "derived", "by the size of the call that was billed"


def test_a_long_list_comes_piece_by_piece():
    shown = explore(
        session(*(user(f"word {i}") for i in range(2 * ROWS_PER_CHUNK + 5)), assistant())
    )
    assert len(rows(shown)["rows"]) == ROWS_PER_CHUNK
    last = rows(shown, **{"from": 2 * ROWS_PER_CHUNK})
    assert [r[4] for r in last["rows"]] == [f"word {i}" for i in range(200, 205)]
    assert last["total"] == 205


def test_the_whole_session_is_searched_and_hits_know_their_call(story):
    shown = explore(story)
    assert words(shown, words="FOUND") == []  # the summary took it
    found = rows(shown, words="FOUND", whole=True)
    assert [r[4] for r in found["rows"]] == ["found"]
    assert (found["total"], found["of"], found["marks"]) == (1, 6, [0])
    assert text(shown, found["rows"][0][0], whole=True)["text"] == "found"


def test_roles_tools_files_and_failures_are_filtered():
    from ctxkit.session import Message, Text, ToolCall

    def read(i: int, path: str, failed: bool = False):
        call = ToolCall(id=f"c{i}", name="Read", arguments={"file_path": path})
        return (
            Message(id=f"a{i}", role="assistant", parts=(call,)),
            Message(
                id=f"r{i}", role="tool", tool="Read", call_id=f"c{i}", is_error=failed,
                parts=(Text(f"of {path}"),),
            ),
        )  # fmt: skip

    shown = explore(
        session(user("go"), *read(1, "a.py"), *read(2, "b.py", failed=True), assistant())
    )
    assert words(shown, role="user") == ["go"]
    assert len(words(shown, tool="Read")) == 4
    assert words(shown, file="b.py", role="tool") == ["b.py"]
    assert words(shown, errors=True) == ["b.py"]
    offered = shown._answer_or_error({"kind": "choices"})
    assert offered["file"] == [["a.py", 2], ["b.py", 2]]
    assert offered["errors"] == [["", 1]]


def test_the_menus_offer_two_hundred_tools_and_files_the_most_frequent_first():
    steps = [step(f"tool{n}", path=f"src/{n}.py") for n in range(201)]
    shown = explore(session(user(), *steps, step("tool7", path="src/7.py"), assistant()))
    offered = shown._answer_or_error({"kind": "choices"})
    for field, names in (("tool", "tool{}"), ("file", "src/{}.py")):
        found = offered[field]
        assert found[:2] == [[names.format(7), 4], [names.format(0), 2]]
        assert len(found) == 200
    assert offered["role"] == [["assistant", 203], ["tool", 202], ["user", 1]]


def test_an_expression_is_matched_by_line_and_ends_in_time(story):
    shown = explore(story)
    assert words(shown, words=r"^So far: \w+", regex=True) == ["So far: nothing."]
    assert "no regular expression" in rows(shown, words="(", regex=True)["error"]
    texts = [f"a\nb{i}\nc" for i in range(30_000)]
    assert search_texts(texts, r"^b2\d{4}$", regex=True, seconds=20).rows == list(
        range(20_000, 30_000)
    )
    started = time.monotonic()
    found = search_texts(["fine", "a" * 40 + "!"], r"(a+)+$", regex=True, seconds=0.5)
    assert found.until == 0
    assert time.monotonic() - started < PATIENCE
    assert search_texts(["x"] * 1000, "y", regex=False, seconds=-1).until == 0


def test_sizes_of_a_long_session_come_behind(story, monkeypatch):
    monkeypatch.setattr(explorer_model, "MAX_SIZED_AT_ONCE", 2)
    shown = explore(story)
    told = []
    shown.send = lambda content, **_: told.append(content)
    first = shown.data["first"]
    assert not first["measured"]
    assert [row[1] for row in first["rows"]] == [None] * first["total"]
    assert "largest messages" in shown.to_text()
    threads = set(threading.enumerate())
    shown._on_browser_request(None, {"kind": "measure"}, [])
    assert all(t.daemon for t in {*threading.enumerate()} - threads)
    shown.wait()
    assert {"kind": "measured"} in told
    assert rows(shown)["measured"]
    monkeypatch.undo()
    assert rows(shown, largest=True)["rows"] == explore(story).data["first"]["rows"]


def test_subagents_are_a_tree_and_one_opens():
    inner = session(user("look"), assistant("seen"), id="inner", agent="scout", title="Look")
    child = session(user("dig"), assistant("dug"), id="child", agent="digger", children=(inner,))
    shown = explore(session(user("go"), assistant("ok"), children=(child,), title="Main"))
    assert [(d, n) for d, n, _ in shown.data["tree"]] == [
        (0, "Main"),
        (1, "digger: dig"),
        (2, "scout: Look"),
    ]
    shown._on_browser_request(None, {"kind": "open", "to": 2}, [])
    assert shown.data["title"] == "Look"
    assert words(shown) == ["look"]


def test_a_huge_message_is_cut_and_says_so():
    shown = explore(session(user("x" * 500_000), assistant()))
    read = text(shown, 0)["text"]
    assert len(read) < 2 * MAX_TEXT_CHARS
    assert "the first 20,000 of 500,000 characters" in read


def test_a_page_without_a_kernel_holds_the_list_and_the_texts(story):
    page = explore(story).page(plotly=False)._repr_html_()
    assert '"rows//2|largest|||||||0"' in page
    assert "long long long" in page
    long = session(user("x" * 4_001), *(user(f"word {i}") for i in range(201)), assistant())
    page = explore(long).page(plotly=False)._repr_html_()
    keys = re.findall(r'"((?:rows|choices|text)//[^"]*)":', page)
    lists = [f"rows//0|{way}|||||||{n}" for way in ("largest", "sent") for n in (0, 100)]
    assert keys == ["choices//", *lists, *(f"text//0|{row}" for row in range(200))]
    assert "the first 4,000 of 4,001 characters" in page


def test_it_has_a_text_twin_and_an_html_twin(story):
    bundle = explore(story)._repr_mimebundle_()
    assert "Call 2 (of 0 to 2)" in bundle["text/plain"]
    first = explore(story, call=0)._repr_mimebundle_()["text/plain"]
    assert " · 1 message" in first
    assert " · 1 messages" not in first
    assert "Largest messages" in bundle["text/html"]


def test_a_session_without_calls_shows_what_stands():
    shown = explore(session(user("only this")))
    assert "No call" in shown.data["first"]["head"]["told"]
    assert words(shown) == ["only this"]
    shown.call = 3
    assert (shown.call, shown.call_view.call) == (0, None)
    assert explore(session()).data["first"]["rows"] == []


@pytest.mark.parametrize("asked", [{}, {"kind": "rows", "call": "x", "from": -5}, {"kind": "text", "row": 99},
                                   {"kind": "open", "to": 7}, {"kind": "rows", "call": 10**9}])  # fmt: skip
def test_a_browser_that_asks_nonsense_gets_an_answer_or_none(story, asked):
    explore(story)._on_browser_request(None, asked, [])


def test_the_sample_opens_at_any_call():
    shown = explore(ck.samples.path("billing"), call=10)
    assert rows(shown)["head"]["told"].startswith("Call 10 (of 0 to 342)")
    changed = [
        r
        for r in rows(explore(ck.replay(ck.samples.path("billing"), "swe_agent_mask")))["rows"]
        if "~" in r[2]
    ]
    assert changed


def test_text_of_a_log_stays_text():
    shown = explore(hostile(), call=2)
    assert intruders(shown.to_html()) == []
    assert intruders(shown.page(plotly=False)._repr_html_().partition("<script")[0]) == []
    seen = "".join(str(row) for row in rows(shown)["rows"]) + "".join(
        text(shown, i)["head"] for i in range(len(shown.call_view.items))
    )
    assert not {"\x1b", "\u202e", "\n"} & set(seen)


def test_titles_that_end_a_script_do_not(story):
    page = explore(replace(story, title="</script><b>x")).page(plotly=False)._repr_html_()
    assert "</script><b>" not in page
