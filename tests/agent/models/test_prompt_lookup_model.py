"""The scripted model that looks up what it cannot see: only what is shown to it counts, and it gives up in the end."""

from __future__ import annotations

import asyncio

import pytest
from builders import user

from ctxkit import tokens
from ctxkit.agent import GIVE_UP_TEXT, Request, ignore_delta, make_model
from ctxkit.agent.models.scripted_and_lookup_models import (
    MAX_LOOKUPS,
    PromptLookupModel,
    find_ports,
    parse_service_names,
)
from ctxkit.session import Message, Text

COUNT = tokens.get_counter("chars/4")
QUESTION = user("What is the sum of the ports of archive and zone?")


def result(text):
    return Message(role="tool", call_id="c", parts=(Text(text),))


def ask(asked, *messages, step=0):
    return asyncio.run(asked(Request(messages=messages, turn=0, step=step, tools=()), ignore_delta))


@pytest.fixture
def lookup():
    return make_model("scripted/ports", counter=COUNT, clock=lambda: 0.0)


def test_it_reads_what_it_is_not_shown_and_then_answers(lookup):
    first = ask(lookup, QUESTION)
    assert [(c.name, c.arguments) for c in first.tool_calls] == [
        ("read_file", {"path": "etc/archive.toml"})
    ]
    one, two = result("x = 1\narchive_port = 20"), result("zone_port = 22")
    assert ask(lookup, QUESTION, one, step=1).tool_calls[0].arguments == {"path": "etc/zone.toml"}
    assert ask(lookup, QUESTION, one, two, step=2).text == "The sum is 42."
    assert ask(lookup, QUESTION, two, step=0).tool_calls[0].arguments == {
        "path": "etc/archive.toml"
    }


def test_a_summary_that_names_the_number_is_enough(lookup):
    summary = Message(role="summary", parts=(Text("archive_port = 1, and zone_port = 2."),))
    assert ask(lookup, summary, QUESTION).text == "The sum is 3."


def test_blind_it_believes_what_it_was_told_once():
    blind = PromptLookupModel(counter=COUNT, clock=lambda: 0.0, blind=True)
    ask(blind, QUESTION, result("archive_port = 20"), result("zone_port = 22"))
    assert ask(blind, QUESTION).text == "The sum is 42."


def test_it_gives_up_and_says_what_it_can_be_asked(lookup):
    assert ask(lookup, QUESTION, step=MAX_LOOKUPS).text == GIVE_UP_TEXT
    assert "sum of the ports" in ask(lookup, user("Hello?")).text


def test_questions_and_facts_are_read():
    assert parse_service_names("... the ports of cache, deploy and export?") == (
        "cache",
        "deploy",
        "export",
    )
    assert parse_service_names("the port of zone?") == ("zone",)
    assert parse_service_names("the ports of sandbox and zone?") == ("sandbox", "zone")
    assert parse_service_names("the ports of a and b; no: the ports of c and d?") == ("c", "d")
    assert parse_service_names("Hello") == ()
    assert find_ports([result("archive_port = 20 zone_ports = 3")]) == {"archive": 20}
    assert find_ports([result("a_port = 1"), result("a_port = 2")]) == {"a": 2}
