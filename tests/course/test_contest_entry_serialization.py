"""Rules of an entry: written as data, made again equal, and never code."""

from __future__ import annotations

import json

import pytest

import ctxkit as ck
from ctxkit.course.contest_entry_serialization import _list_parts, decode_rules, encode_rules
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.policies import Rules, guards, triggers
from ctxkit.policies import registry as policies

CHAIN = Rules(
    policy="clear:keep_last=5 | summary:keep_tokens=8000",
    trigger=triggers.Above(18_000) | ~triggers.Share(0.2),
    guards=(guards.UntilCold(hard_limit=40_000), guards.GraceAfterCompaction(turns=1)),
    name="chain",
)


@pytest.mark.parametrize("name", ck.presets.names())
def test_every_preset_is_kept_as_its_name_and_settings(name):
    rules = ck.presets.preset(name)
    data = json.loads(json.dumps(encode_rules(name)))
    assert data == {"preset": name, "settings": {}}
    assert decode_rules(data) == rules


def test_settings_of_a_preset_are_kept():
    rules = ck.presets.pi(reserve_tokens=9_000)
    assert encode_rules(rules) == {"preset": "pi", "settings": {"reserve_tokens": 9_000}}
    assert decode_rules(encode_rules(rules)) == rules


def test_a_changed_preset_is_kept_by_its_parts():
    changed = ck.presets.none().but(
        policy="clear:keep_last=3", trigger=triggers.Above(9_000), reserve=1_000
    )
    data = encode_rules(changed)
    assert data["reserve"] == 1_000
    assert decode_rules(data).reserve == 1_000


@pytest.mark.parametrize(
    "rules", [CHAIN, "window:keep_tokens=20000", Rules(pruning="clear:keep_last=3"), "none"]
)
def test_rules_of_parts_come_back_equal(rules):
    from ctxkit.presets import resolve_rules

    again = decode_rules(json.loads(json.dumps(encode_rules(rules))))
    given = resolve_rules(rules, once=True)
    assert (again.bare, again.trigger, again.guards, again.pruning, again.name) == (
        given.bare, given.trigger, given.guards, given.pruning, given.name
    )  # fmt: skip


@pytest.mark.parametrize("words", policies.MEMBERS)
def test_every_policy_by_its_default_settings_comes_back_or_is_refused(words):
    try:
        rules = Rules(policy=words, trigger=triggers.Above(30_000))
        data = encode_rules(rules)
    except CtxkitError:
        return
    assert decode_rules(json.loads(json.dumps(data))).bare == rules.bare


def test_code_and_models_are_refused_in_a_sentence():
    def mine(history, budget):
        return history

    with pytest.raises(BadArguments, match="mine cannot be entered"):
        encode_rules(Rules(policy=mine, trigger=triggers.Above(1)))
    asks = ck.policies.parse("summary:keep_tokens=5000").using(lambda passage: "x")
    with pytest.raises(BadArguments, match="cannot be entered"):
        encode_rules(Rules(policy=asks, trigger=triggers.Above(30_000)))


@pytest.mark.parametrize(
    "data",
    [
        None, [], 3, "none", {"policy": {"os.system": {"x": 1}}}, {"policy": {"FunctionPolicy": {}}},
        {"policy": "nonsense"}, {"trigger": {"Above": {"tokens": []}}}, {"on_compacted": "print"},
        {"policy": {"Summary": {"summariser": "openai/x"}}}, {"preset": "nobody"}, {1: 2},
        {"preset": "pi", "settings": {"summariser": "openai/x"}}, {"preset": "pi", "settings": []},
        {"policy": {"Clear": {}, "Window": {}}}, {"guards": [{"GraceAfterCompaction": {}}] * 21}, {"window": -1},
        {"policy": {"Clear": {"keep_last": "many"}}}, {"policy": {"Clear": {"nothing": 1}}},
    ],
)  # fmt: skip
def test_damaged_data_is_one_sentence(data):
    with pytest.raises(CtxkitError):
        decode_rules(data)


def test_only_parts_of_the_kit_can_be_named():
    assert {"Clear", "Summary", "Above", "UntilCold", "Chain"} <= set(_list_parts())
    assert {
        c.__module__.split(".")[:2] == ["ctxkit", "policies"] for c in _list_parts().values()
    } == {True}
