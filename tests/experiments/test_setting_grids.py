"""Grids of settings, what names a list of rules, and labels that tell settings apart."""

from __future__ import annotations

import numpy as np
import pytest

import ctxkit as ck
from ctxkit.experiments import setting_grids_and_labels as grids
from ctxkit.policies import Rules


def make_settings(*settings):
    return [grids.RejectedSetting(name, parameters, "") for name, parameters in settings]


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ([("a", {"x": 1, "y": 2}), ("a", {"x": 2, "y": 2})], ["a(x=1)", "a(x=2)"]),
        ([("a", {"x": 1}), ("b", {"x": 2})], ["a", "b"]),
        ([("a", {"x": 1}), ("a", {})], ["a(x=1)", "a"]),
        ([("a", {"x": None}), ("a", {"x": 5000})], ["a", "a(x=5_000)"]),
        ([("a", {"x": True, "y": 1}), ("a", {"x": False, "y": 2})], ["a(x=True, y=1)", "a(x=False, y=2)"]),
        ([("a", {"x": 1}), ("b", {}), ("a", {"x": 1}), ("a", {"x": 1})], ["a", "b", "a (2)", "a (3)"]),
    ],
)  # fmt: skip
def test_a_label_has_the_settings_in_which_namesakes_differ(settings, labels):
    assert grids.label_rules(make_settings(*settings)) == labels


def test_settings_vary_where_some_rules_have_another_value_or_none():
    rules = make_settings(("a", {"x": 1, "y": 1, "z": 3}), ("b", {"x": 1, "y": 2}))
    assert grids.find_varying_settings(rules) == ("y", "z")
    assert grids.find_varying_settings(rules[:1]) == ()
    # names stand in the order of their first appearance
    assert grids.find_varying_settings([*make_settings(("c", {"v": 1})), *rules]) == (
        "v", "x", "y", "z",
    )  # fmt: skip


def test_values_of_a_grid_are_plain_numbers_in_the_order_given():
    def make(a=1, b="x"):
        return Rules(name="made", parameters={"a": a, "b": b})

    found = ck.grid(make, a=np.array([3, 2]), b=("x", "y"))
    assert [(r.parameters["a"], r.parameters["b"]) for r in found] == [
        (3, "x"), (3, "y"), (2, "x"), (2, "y"),
    ]  # fmt: skip
    assert {type(r.parameters["a"]) for r in found} == {int}
    assert [r.parameters["a"] for r in ck.grid(make, a=range(2))] == [0, 1]
    assert [r.parameters["b"] for r in ck.grid(make, b="long text")] == ["long text"]
    assert repr(found) == "<Grid: 4 settings>"


def test_a_refused_combination_has_its_settings_and_the_reason():
    def make(a=1, b=2, *, c=0):
        if a == b:
            raise ck.BadArguments("No.")
        return Rules(name="made")

    found = ck.grid(make, a=[2, 3])
    assert found.refused == [grids.RejectedSetting("make", {"a": 2, "b": 2, "c": 0}, "No.")]
    assert found[0] is found.refused[0]
    assert repr(found) == "<Grid: 2 settings, 1 refused: No.>"


def test_the_names_of_settings_are_checked_where_they_are_known():
    def free(**settings):
        return Rules(name="free", parameters=settings)

    assert ck.grid(free, anything=[1, 2])[1].parameters == {"anything": 2}
    with pytest.raises(
        ck.UnknownName, match=r"Preset 'swe_agent_mask' has no setting 'm'; it has n"
    ):
        ck.grid("Swe-Agent-Mask ", m=1)
    assert [r.parameters["n"] for r in ck.grid(" Swe-Agent-Mask", n=[1, 2])] == [1, 2]
    with pytest.raises(ck.BadArguments, match="not of int"):
        ck.grid(3, n=1)


def test_what_names_rules_becomes_a_list_of_them():
    resolve = grids.resolve_rules_list
    none = ck.presets.none()
    rejected = grids.RejectedSetting("a", {}, "No.")
    for given in (none, [none], "none", ["None "], ck.presets.none, [ck.presets.none]):
        assert [r.label for r in resolve(given)] == ["none"]
    assert resolve(rejected) == resolve([rejected]) == [rejected]
    every = [r.label for r in resolve(["all", "none"])]
    assert len(every) == len(ck.presets.names()) + 1
    assert every[-1] == "none"
    with pytest.raises(ck.BadArguments, match="Give rules, or a list of them, not int"):
        resolve(3)
    with pytest.raises(ck.BadArguments, match="at least one setting"):
        resolve([])


@pytest.mark.parametrize("value", [3, 2.5, "x", True, None])
def test_plain_values_stay_and_others_become_text(value):
    assert grids.convert_setting_to_plain_value(value) is value
    assert grids.convert_setting_to_plain_value([value]) == str([value])
