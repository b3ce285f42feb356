"""The contract of every rule: its secret goes however it comes, and whatever is around it.

A rule without an example, or with one that it does not find by itself, fails here.
"""

from __future__ import annotations

import json

import pytest
import yaml
from _internal.redaction.rule_examples import ALPHABETS, WAYS, Example, drawn_example, split
from _internal.redaction.secret_corpus import INNOCENT

from ctxkit._internal.environment_secrets import FORMS
from ctxkit._internal.redaction import (
    REDACTION_MARK,
    RULES,
    WEBHOOKS,
    StreamRedactor,
    redact,
    redact_json,
)
from ctxkit._internal.redaction_rule_and_hidden_characters import TextWithoutHiddenCharacters

SEEDS = range(3)


def examples(rule):
    return [drawn_example(t, seed) for t in rule.examples for seed in SEEDS]


def is_gone(secret: str, text: str) -> bool:
    """True where no six characters in a row of a secret are seen, but for the edges of a block."""
    seen = TextWithoutHiddenCharacters(text).text
    return not any(
        secret[i : i + 6] in seen
        for i in range(len(secret) - 5)
        if "-" not in secret[i : i + 6] and "KEY" not in secret[i : i + 6]
    )


def is_found_by(rule, example) -> bool:
    """True where a rule alone finds a secret."""
    view, start = TextWithoutHiddenCharacters(example.text), len(example.before)
    covered = {i for a, b in rule.find(view) for i in range(a, b)}
    return covered.issuperset(range(start, start + len(example.secret)))


def test_every_rule_has_a_name_of_its_own_and_an_example():
    assert len({rule.name for rule in RULES}) == len(RULES) >= 200
    assert [rule.name for rule in RULES if not rule.examples] == []
    assert [
        rule.name
        for rule in RULES
        for e in examples(rule)
        if rule.hint not in (e.text.lower() if rule.is_caseless else e.text) or len(e.secret) < 6
    ] == []


def test_every_rule_finds_its_own_examples():
    """Not by way of another rule: else its example would not be one of it."""
    lost = [
        (rule.name, e.text) for rule in RULES for e in examples(rule) if not is_found_by(rule, e)
    ]
    assert lost == []


def test_a_short_text_and_a_long_one_lose_the_same():
    """Of a short text all hints are searched at once, of a long one each by itself."""
    padding = "\n" + "and so on. " * 200
    for rule in RULES:
        text = examples(rule)[0].text
        assert redact(text + padding) == redact(text) + padding, rule.name


def test_the_alphabets_are_those_that_rules_name():
    named = {c for rule in RULES for t in rule.examples for c in ALPHABETS if f"{{{c}" in t}
    assert named == set(ALPHABETS)


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_goes_in_every_way_it_comes(way):
    lost = []
    for rule in RULES:
        for e in examples(rule):
            text = WAYS[way](e)
            if rule.is_whole_line and way.startswith("behind a coloured"):
                continue
            shown = redact(f"seen:\n{text}\nthen more.")
            whole = shown.startswith("seen:\n") and shown.endswith("\nthen more.")
            lost += [] if whole and is_gone(e.secret, shown) else [(rule.name, shown)]
    assert lost == []


def test_a_secret_goes_after_a_digit():
    lost = []
    for rule in RULES:
        for e in examples(rule):
            shown = redact(f"17\n{e.text}" if rule.is_whole_line else f"17{e.text}")
            lost += [] if is_gone(e.secret, shown) else [(rule.name, shown)]
    assert lost == []


def test_a_secret_goes_beside_capitals():
    caseless = [(r.name, e) for r in RULES if r.is_caseless for e in examples(r)]
    shown = [(n, e, redact(e.before.upper() + e.secret + e.after.upper())) for n, e in caseless]
    assert len(caseless) > 200
    assert [(name, text) for name, e, text in shown if not is_gone(e.secret, text)] == []


def as_documents(text: str):
    """Yield a text within JSON, in JSON that is a text in JSON, and in YAML of three styles."""
    value = {"output": f"seen:\n{text}\nthen more.", "n": 1}
    yield json.dumps(value)
    yield json.dumps(value, indent=1)
    yield json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False)
    for style in ("|", "'", None):
        yield yaml.safe_dump(value, default_style=style, width=10_000)


def test_a_secret_goes_inside_json_and_yaml():
    lost = []
    for rule in RULES:
        for e in examples(rule):
            for document in as_documents(e.text) if "\\" not in e.text else ():
                shown = redact(document)
                lost += [] if is_gone(e.secret, shown) else [(rule.name, shown)]
            shown = redact_json({"output": [e.text]})["output"][0]
            lost += [] if is_gone(e.secret, shown) else [(rule.name, shown)]
    assert lost == []


@pytest.mark.parametrize("between", ["", "\x1b[0m\x1b[1m"], ids=["whole", "split by an escape"])
def test_a_secret_goes_from_a_stream_wherever_it_is_cut(between):
    lost = []
    for rule in RULES:
        for template in rule.examples:
            e = drawn_example(template, 7)
            text = f"Seen:\n{e.before}{split(e.secret, between)}{e.after}\nthen more.\n"
            whole = redact(text)
            for cut in range(6, len(text), 3):
                stream = StreamRedactor([])
                first, rest = stream.feed(text[:cut]), stream.feed(text[cut:])
                if first + rest + stream.flush() != whole or not is_gone(e.secret, first):
                    lost.append((rule.name, text[:cut], first))
    assert lost == []


@pytest.mark.parametrize("form", FORMS)
def test_a_value_of_the_environment_goes_in_every_form_and_way(monkeypatch, form):
    monkeypatch.setenv("PLANTED_PASSWORD", "Tr0ub4&dor-3xyz")
    for written in FORMS[form]("Tr0ub4&dor-3xyz"):
        for way, come in WAYS.items():
            text = come(Example("it is ", written, " there"))
            assert is_gone(written, redact(text)), way
            stream = StreamRedactor()
            assert REDACTION_MARK in "".join([*map(stream.feed, text), stream.flush()]), way


@pytest.mark.parametrize("hook", WEBHOOKS, ids=lambda hook: hook.service)
@pytest.mark.parametrize("slash", ["\\/", "%2F"])
def test_an_address_goes_with_slashes_as_json_and_urls_write_them(hook, slash):
    e = drawn_example(hook.example.replace("/", slash), 1)
    assert is_gone(e.secret, redact(e.text))


@pytest.mark.parametrize("way", WAYS)
def test_innocent_texts_stay_in_every_way_they_come(way):
    texts = [WAYS[way](Example("", text, "")) for text in INNOCENT]
    assert [(t, redact(t)) for t in texts if redact(t) != t] == []


def test_a_secret_goes_within_an_escape_sequence():
    """A link of a terminal holds its address, a title its words: no one sees them, files keep them."""
    lost = []
    for rule in RULES:
        for e in examples(rule) if not rule.is_whole_line else ():
            if e.text.isprintable():
                shown = redact(f"see \x1b]8;;{e.text}\x1b\\here\x1b]8;;\x1b\\ \x1b]0;{e.text}\x07.")
                lost += (
                    []
                    if shown.count(REDACTION_MARK) >= 2 and e.secret[:8] not in shown
                    else [rule.name]
                )
    assert lost == []
