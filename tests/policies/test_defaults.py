"""Every default and constant is in a table: one that changes is meant, and seen in the diff."""

from __future__ import annotations

import json

from setting_defaults import TABLE, collect_defaults, list_setting_classes

import ctxkit.presets
from ctxkit.policies.registry import MEMBERS


def test_every_default_is_the_one_of_the_table():
    wanted = json.loads(TABLE.read_text(encoding="utf-8"))
    got = collect_defaults()
    changed = {
        (owner, setting): (old, new)
        for owner in wanted.keys() | got.keys()
        for setting in wanted.get(owner, {}).keys() | got.get(owner, {}).keys()
        if (old := wanted.get(owner, {}).get(setting)) != (new := got.get(owner, {}).get(setting))
    }
    assert changed == {}, "if these are meant: python tests/setting_defaults.py"


def test_every_policy_and_preset_is_in_the_table():
    classes = {c.__name__ for c in list_setting_classes()}
    assert {m.split(":")[1] for m in MEMBERS.values()} <= classes
    assert {f"preset {n}" for n in ctxkit.presets.names()} <= collect_defaults().keys()
