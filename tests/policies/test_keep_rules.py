"""`keep_rules`: the user's rules continue behind a compaction, word for word, once, within a budget."""

from __future__ import annotations

import pytest
from builders import assistant, session, step, user

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.policies import Above, Rules, rules_modifiers
from ctxkit.policies.user_rule_extraction import (
    RULES_HEADING,
    SentenceKind,
    UserRule,
    extract_user_rules,
    fit_rules,
    parse_rules_and_statements,
)
from ctxkit.session import RECALLED_KIND

BAN = "Never push to main."
VERSION = "Use version 3.11.4 of Python."


def talk(*first, turns=12):
    log = [user(text) for text in first]
    for n in range(turns):
        log += [
            *step(text=f"row {n} " * 400),
            assistant(f"Read part {n}."),
            user(f"Go on with part {n}."),
        ]
    return session(*log, assistant("Done."))


def replayed(s, *, tokens=400, summariser=lambda _: "Work went on."):
    rules = Rules("summary:keep_tokens=600", Above(3_000), window=8_000, summariser=summariser)
    return ck.replay(s, rules_modifiers.keep_rules(rules, tokens))


def digests(s, call=None):
    return [m.text for m in s.view(call) if m.kind == RECALLED_KIND]


@pytest.mark.parametrize(
    "text",
    [
        *(
            BAN,
            VERSION,
            "do not touch prod",
            "Antworte bitte auf Deutsch.",
            "Only Petra may release it.",
            "Use Node 20.11.",
            "Please pin it to 2.32.5.",
        ),
        *(
            "不要修改数据库中的任何表。",
            "Ne touche jamais à la base.",
            "Leave the schema as it is.",
        ),
    ],
)
def test_what_binds_or_chooses_is_a_rule(text):
    assert [r.text for r in extract_user_rules([user(text)])] == [text]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Look at the mail module.",
            "Must it be so?",
            "```\nnever do this\n```",
            "> never do this",
        ),
        *("npm error must never happen", "Error: file must exist", "It looked odd this morning."),
        "Using cached flask-3.0.3-py3-none-any.whl (101 kB)",
    ],
)
def test_requests_questions_quotes_and_output_are_none(text):
    assert extract_user_rules([user(text)]) == []


def test_only_what_the_user_wrote_counts():
    assert (
        extract_user_rules([assistant(BAN), user(BAN, kind="injected"), user(BAN, kind="wrapper")])
        == []
    )


def test_a_sentence_of_a_megabyte_is_read_in_time():
    assert list(parse_rules_and_statements("never " * 200_000)) == []


def test_a_rule_that_went_stands_behind_the_summary_once():
    s = replayed(talk(BAN, VERSION))
    (text,) = digests(s)
    assert text == f"{RULES_HEADING}\n- {BAN}\n- {VERSION}"
    assert s.view()[1].kind == RECALLED_KIND
    assert len(s.edits) > 4, "it went through more than one compaction"


def test_without_it_the_rule_is_gone():
    rules = Rules(
        "summary:keep_tokens=600", Above(3_000), window=8_000, summariser=lambda _: "Work."
    )
    assert BAN not in "\n".join(m.text for m in ck.replay(talk(BAN), rules).view())


def test_what_the_summary_states_word_for_word_is_not_stated_twice():
    s = replayed(talk(BAN, VERSION), summariser=lambda _: f"The user said: {BAN}")
    assert digests(s) == [f"{RULES_HEADING}\n- {VERSION}"]


def test_before_anything_went_nothing_is_added():
    assert digests(replayed(talk(BAN, turns=1))) == []


def test_bans_come_before_choices_and_the_newer_before_the_older():
    rules = [UserRule(f"rule {i}", s) for i, s in enumerate((2, 1, 2, 0))]
    rules = [r._replace(kind=SentenceKind(r.kind)) for r in rules]
    fitting = fit_rules(rules, 20, lambda _: 10)
    assert [r.text for r in fitting] == ["rule 0", "rule 2"]
    assert [r.text for r in fit_rules(rules, 10, lambda _: 10)] == ["rule 2"]


def test_the_tokens_are_bounded():
    s = replayed(
        talk(*(f"Never touch table number {n} of the ledger." for n in range(200))), tokens=100
    )
    (text,) = digests(s)
    assert 3 < text.count("\n- ") < 12


def test_recall_beside_it_keeps_its_own_digest():
    rules = Rules(
        "summary:keep_tokens=600 | recall", Above(3_000), window=8_000, summariser=lambda _: "Work."
    )
    s = ck.replay(
        talk("Always keep the column order of the CSV.", VERSION), rules_modifiers.keep_rules(rules)
    )
    assert len(digests(s)) == 2


def test_rules_that_compact_nothing_are_refused():
    with pytest.raises(BadArguments, match="compact nothing"):
        rules_modifiers.keep_rules(ck.presets.none())
