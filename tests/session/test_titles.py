"""What a session is called."""

from __future__ import annotations

import pytest
from builders import assistant, session, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import planted_facts_and_compaction_audits as planted_facts
from ctxkit.session import get_title, make_names_unique, make_unique_titles
from ctxkit.widgets import resolve_source


def test_a_title_else_the_first_words_else_project_and_day_else_the_id():
    asked = user("<env>\n/w\n</env>\n# Fix the *export* please")
    assert get_title(session(asked, title="Nightly export", id="i")) == "Nightly export"
    assert get_title(session(asked, id="i")) == "Fix the *export* please"
    assert get_title(session(cwd="/home/me/billing", started=0.0, id="i")) == "billing 1970-01-01"
    assert get_title(session(id="i")) == "i"


def test_a_title_that_says_nothing_is_none():
    for title in ("New session - 2026-07-28T18:19:59.340Z", "...", "Untitled chat", " "):
        assert get_title(session(user("Do this."), title=title)) == "Do this."


def test_what_a_person_said_in_tags_is_taken_where_there_is_no_more():
    assert get_title(session(user("<task>Write a poem.</task>"))) == "Write a poem."


def test_what_was_put_in_the_users_place_is_no_title():
    assert get_title(session(user("Skill loaded", kind="injected"), user("Go on"))) == "Go on"


def test_long_and_hostile_titles_are_one_bounded_line():
    for title in ("x" * 10_000, "a\nb\x1b[31mc\u202e", "<b>" * 500):
        made = get_title(session(assistant(), title=title), 40)
        assert len(made) <= 40
        assert not {"\n", "\x1b", "\u202e"} & set(made)


SECRET = "ghp_" + "aB3dE6gH9j" * 3 + "kLmN1p"


@pytest.mark.parametrize(
    "refused",
    [
        lambda s: s.view(7),
        lambda s: s.branch(99),
        lambda s: s.branch("x"),
        ck.calibrate,
        ck.experiments.exam,
        lambda s: ck.experiments.exam(s, compaction=3),
        ck.plots.diff,
        lambda s: planted_facts.plant_facts(s, planted_facts.make_facts(1)),
    ],
)
def test_an_error_quotes_the_id_of_a_session_in_one_bounded_line_without_its_keys(refused):
    with pytest.raises(BadArguments, match=r"^Session 'a ") as error:
        refused(session(assistant("x"), id=f"a \x1b[31m\n{SECRET} " + "b" * 500))
    assert [w for w in (SECRET, "\x1b", "\n", "b" * 80) if w in str(error.value)] == []


def test_two_of_a_name_are_told_apart():
    assert make_unique_titles([session(title="a"), session(title="a"), session(title="b")]) == [
        "a",
        "a (2)",
        "b",
    ]


@given(st.lists(st.sampled_from(["a", "a (2)", "a (2) (2)", "a (3)", "b"]), max_size=12))
def test_no_two_names_are_one_and_the_first_keeps_its_own(names):
    own = make_names_unique(names)
    assert len(set(own)) == len(names)
    assert all(o.startswith(n) for o, n in zip(own, names, strict=True))
    assert own[:1] == names[:1]


def test_a_chart_turned_by_hand_calls_a_session_as_every_table_does():
    two = [session(user("Mend the parser")), session(user("Mend the parser"))]
    assert list(resolve_source(two).titles.values()) == ["Mend the parser", "Mend the parser (2)"]
