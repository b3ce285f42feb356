"""Each setting of each preset changes something on some history, or is declared inert with a reason."""

from __future__ import annotations

import json
import re
from ast import literal_eval
from hashlib import sha256
from inspect import signature

import pytest
from builders import assistant, result, session, tool_call, user
from presets.test_contract_presets import SMALL, WINDOWS

import ctxkit as ck
from ctxkit import presets
from ctxkit.errors import CtxkitError
from ctxkit.experiments import SessionRunner
from ctxkit.presets import names, preset
from ctxkit.presets.inert_settings import (
    INERT_SETTINGS,
    SettingEffectScope,
    describe_inert_settings,
    find_inert_setting,
    has_effect,
    have_same_effect,
)
from ctxkit.presets.systems.tyrum_checkpoint import make_checkpoint_without_model, parse_checkpoint
from ctxkit.session import Usage

CLAUSES = [("messages", 6), ("tokens", 5_000), ("fraction", 0.2)]


def write_all_it_was_told(passage) -> str:
    """A short summary that depends on all that a setting can change of its prompt."""
    told = f"{passage.instructions} {len(passage.positions)} {passage.limit} {passage.messages!r}"
    return sha256(told.encode()).hexdigest()


def write_more_than_there_was(passage) -> str:
    return "word " * (passage.tokens + 400)


def write_checkpoint(passage) -> str:
    """A checkpoint of Tyrum that its audit lets pass: the one without a model, with another goal."""
    before = passage.previous.details.get("checkpoint") if passage.previous else None
    previous = parse_checkpoint(before) if before else None
    point = vars(make_checkpoint_without_model(passage.messages, previous))
    return json.dumps({**{k: v for k, v in point.items() if v}, "goal": "Do what was asked."})


VALUES = {
    "summariser": [write_all_it_was_told, "fixed", write_checkpoint],
    "quirks": [True],
    "scorer": [lambda m: (len(m.id) % 2, 0.0)],
    "tool_calls": ["all", "none", "before-last-6-messages"],
    "tool_summary_strategy": ["heuristic", "off"],
    "tool_result_char_overrides": [{"run": 20, "read_file": 20, "logs": 20}],
    "empty_messages": ["keep"],
    **dict.fromkeys(("trigger", "keep", "truncate_args_trigger", "truncate_args_keep"), CLAUSES),
}
WHOLE = [0, 1, 2, 5, 50, 1_000, 5_000, 12_000, 30_000, 60_000]
"""Values of settings that no annotation bounds, besides the default."""

MORE_BASES = {
    "pulse_coder": [{"keep_last_turns": 1, "compact_summary_max_tokens": 60_000}],
    "fuseraft": [
        {"max_tool_result_tokens": 3_000},
        {"max_tail_messages": 10},
        {"max_tool_result_chars": 500},
        {"context_window": 30_000},
    ],
    "ai": [
        {"context_window": 0, "max_tokens": 0, "max_messages": 20},
        {"context_window": 20_000, "keep_recent_tokens": 0},
        {"max_chars": 500},
    ],
    "fased": [
        {"context_window": 40_000, "keep_recent_tokens": 3_000, "identifier_policy": "custom"},
        {"mode": "default"},
        {"memory_flush": False},
        {
            "context_pruning": "cache-ttl",
            "context_window": 60_000,
            "ttl_seconds": 0,
            "soft_trim_ratio": 0.0,
            "hard_clear_ratio": 0.0,
            "min_prunable_tool_chars": 0,
            "keep_last_assistants": 1,
        },
    ],
    "openclaw": [
        {"context_window": 40_000, "keep_recent_tokens": 3_000, "identifier_policy": "custom"},
        {"context_window": 40_000, "keep_recent_tokens": 3_000, "quality_guard": True},
        {"mode": "default"},
    ],
    "opencode": [
        {"limit_input": 60_000},
        {"limit_input": 60_000, "reserved": 9_000},
        {"version": "2", "context_window": 60_000},
    ],
    "claude_code": [
        {"version": "2.1.299", "idle_min_tokens": 5_000},
        {"idle_min_tokens": 5_000},
        {"version": "2.1.299"},
    ],
    "langchain_summary": [{"trigger": ("fraction", 0.1), "context_window": 60_000}],
    "deepagents": [
        {
            "context_window": 40_000,
            "truncate_args_trigger": ("messages", 5),
            "truncate_args_keep": ("messages", 2),
            "truncate_args_max_length": 20,
        },
        {"truncate_args_trigger": None},
    ],
    "strands": [{"window_size": 12, "context_window": 20_000}],
    "boise": [{"hard_mult": 10.0}, {"hard_mult": 1.0}],
    "roo": [{"auto_condense_context": False}],
}
SAMPLES = ("chat", "incident", "research", "billing", "migration")


def bases(name: str, *, models: bool = False) -> list[dict]:
    """Settings of a preset under which others are turned; also with a model for the summaries."""
    plain = [{}, *WINDOWS[name], SMALL[name], *MORE_BASES.get(name, ())]
    if models and "summariser" in signature(getattr(presets, name)).parameters:
        writers = (write_all_it_was_told, write_more_than_there_was)
        plain += [{**base, "summariser": writer} for writer in writers for base in plain]
    return plain


def values_of(setting: str, parameter) -> list:
    """Values of a setting that differ from its default."""
    annotation, out = str(parameter.annotation), []
    if setting in VALUES and not (setting in ("trigger", "keep") and "int" in annotation):
        return VALUES[setting]
    words = re.search(r"Literal\[(.*?)\]", annotation)
    if words:
        out += literal_eval(f"({words[1]},)")
    if "bool" in annotation:
        out += [True, False]
    if re.search(r"\b(int|Natural|Positive)\b", annotation):
        out += WHOLE
    if re.search(r"float|Share|Proportion", annotation):
        out += [0.0, 0.05, 0.2, 0.5, 0.9, 1.0, 10.0, 1_000.0]
    if "tuple" in annotation:
        out += [("read_file",), ("run",)]
    if re.search(r"\bstr\b", annotation) and not words:
        out += ["x" * 20]
    return [v for v in out if v != parameter.default]


def cut_short():
    """A short session whose replies were cut off at the output limit."""
    turns = [(user(f"Request {i}."), assistant(f"Reply {i}", stop="length")) for i in range(6)]
    return session(*(message for turn in turns for message in turn))


def left_for_two_hours():
    """A session whose cache lives an hour, and which goes on after two."""
    log = []
    for i in range(8):
        prompt = 20_000 + 1_000 * i
        used = Usage(input_tokens=prompt, cache_read_tokens=0, cache_write_1h_tokens=1_000)
        reply = assistant("word " * 700, usage=used, model="claude-opus-5", time=7_200.0 * i)
        log += [user(f"Request {i}.", time=7_200.0 * i - 1), reply]
    return session(*log)


def refused_once():
    """A session with long results, of which one prompt was refused as too long."""
    log = [user("Read them.")]
    for i in range(4):
        reply = assistant("", tool_call(path=f"f{i}"))
        log += [reply, result("word " * 900, reply)]
    error = "prompt is too long: 210000 tokens > 200000 maximum"
    return session(*log, assistant("", error=error, is_error=True), assistant("Read."))


def wrote_long_files():
    """A session whose calls have long arguments."""
    log = [user("Write them.")]
    for i in range(8):
        call = tool_call("write_file", path=f"f{i}", content="word " * 900)
        reply = assistant("", call)
        log += [reply, result("Written.", reply)]
    return session(*log, user("Go on."), assistant("Done."))


@pytest.fixture(scope="module")
def runners():
    samples = [ck.read(ck.samples.path(name)) for name in SAMPLES]
    made = (cut_short(), left_for_two_hours(), refused_once(), wrote_long_files())
    return [SessionRunner(each) for each in (*samples, *made)]


class Turns:
    """What replays of a preset do as its settings are turned, each base replayed once."""

    def __init__(self, name: str, runners) -> None:
        self.name, self.runners = name, runners
        self._seen: dict = {}

    def outcome(self, settings: dict, key: object, runner: SessionRunner) -> object:
        if key not in self._seen:
            try:
                run = runner.run(preset(self.name, **settings))
            except CtxkitError:
                self._seen[key] = None  # settings that are refused change nothing
            else:
                cuts = [[m.text for m in cut.new.messages] for cut in run.compactions]
                whys = [h.why for h in run.blocked]
                sent = [(i.message.role, i.message.text) for i in run.sent(len(run.prompts) - 1)]
                self._seen[key] = (run.prompts.tolist(), cuts, whys, sorted(run.warned), sent)
        return self._seen[key]

    def changes_a_replay(self, base: dict, at: int, setting: str, value: object) -> bool:
        turned = {**base, setting: value}
        try:
            if have_same_effect(preset(self.name, **base), preset(self.name, **turned)):
                return False
        except CtxkitError:
            return False
        for i, runner in enumerate(self.runners):
            before = self.outcome(base, (at, i), runner)
            after = self.outcome(turned, (at, i, setting, repr(value)), runner)
            if None not in (before, after) and before != after:
                return True
        return False


def declared(name: str, setting: str) -> list:
    return [r for r in INERT_SETTINGS.get(name, ()) if setting in r.settings]


@pytest.mark.long
@pytest.mark.parametrize("name", names())
def test_every_setting_changes_a_replay_or_is_declared_inert(name, runners):
    turns, idle = Turns(name, runners), []
    for setting, parameter in signature(getattr(presets, name)).parameters.items():
        if any(r.scope is SettingEffectScope.LIVE for r in declared(name, setting)):
            continue
        if not any(
            turns.changes_a_replay(base, at, setting, value)
            for at, base in enumerate(bases(name, models=True))
            for value in values_of(setting, parameter)
        ):
            idle.append(setting)
    assert idle == []


@pytest.mark.long
@pytest.mark.parametrize("name", INERT_SETTINGS)
def test_settings_for_models_and_live_sessions_change_no_replay_without_them(name, runners):
    turns, parameters = Turns(name, runners[:3]), signature(getattr(presets, name)).parameters
    for reason in INERT_SETTINGS[name]:
        for setting in (
            reason.settings if reason.scope is not SettingEffectScope.OTHER_SETTINGS else ()
        ):
            for at, base in enumerate(bases(name, models=reason.scope is SettingEffectScope.LIVE)):
                for value in values_of(setting, parameters[setting])[:3]:
                    assert not turns.changes_a_replay(base, at, setting, value), (setting, base)


@pytest.mark.parametrize("name", names())
def test_a_setting_that_makes_equal_rules_is_declared_with_what_holds_it(name):
    """One equal value is another word for the default; two are a setting without effect."""
    for base in bases(name):
        rules = preset(name, **base)
        for setting, parameter in signature(getattr(presets, name)).parameters.items():
            equal = [
                value
                for value in values_of(setting, parameter)
                if value != rules.parameters[setting]
                and has_effect(name, rules.parameters, setting, [value]) is False
            ]
            if len(equal) > 1:
                reason = find_inert_setting(name, rules.parameters, setting, equal)
                assert reason is not None, (setting, base, equal)
                assert not reason.controller or reason.controller in rules.parameters


@pytest.mark.parametrize("name", INERT_SETTINGS)
def test_what_holds_a_setting_lets_it_act_once_it_is_turned(name):
    parameters = signature(getattr(presets, name)).parameters
    for reason in INERT_SETTINGS[name]:
        assert set(reason.settings) <= set(parameters)
        for setting in reason.settings if reason.scope is SettingEffectScope.OTHER_SETTINGS else ():
            values = values_of(setting, parameters[setting])
            freed = [
                has_effect(name, {**settings, reason.controller: reason.free}, setting, values)
                for base in bases(name)
                if has_effect(name, settings := dict(preset(name, **base).parameters), setting, [])
                is None
            ]
            assert True in freed, (reason.controller, setting)


def test_a_setting_below_its_floor_names_the_floor():
    (sentence,) = describe_inert_settings(presets.fased(reserve_tokens=8_000))
    assert sentence.startswith("reserve_tokens has no effect (held by reserve_tokens_floor")
    assert describe_inert_settings(presets.fased(reserve_tokens=30_000)) == []
    assert (
        describe_inert_settings(presets.fased(reserve_tokens=8_000, reserve_tokens_floor=0)) == []
    )
    assert describe_inert_settings(ck.policies.Rules()) == []


README_RULES = {"context_window": 48_000, "keep_recent_tokens": 9_000}


def test_compare_sweep_grid_and_tune_say_what_holds_a_setting():
    """N3: each view of rules whose reserve is below the floor names the floor."""
    billing = ck.read(ck.samples.path("billing"))
    rules = presets.fased(reserve_tokens=8_000, **README_RULES)
    grid = ck.grid("fased", reserve_tokens=[0, 8_000, 30_000], context_window=48_000)
    assert "reserve_tokens has no effect in 2 of 3 (held by reserve_tokens_floor" in repr(grid)
    compared = ck.compare(billing, [rules], loss=False, progress=False)
    swept = ck.sweep([billing], grid, progress=False)
    tuner = ck.tune(billing, rules)
    for text in (compared.to_text(), compared._repr_html_(), repr(swept), tuner.to_text()):
        assert "reserve_tokens" in text
        assert "no effect" in text.lower()
    assert "reserve_tokens_floor" in tuner.inert_notes.notes["reserve_tokens"].value
    tuner.sliders["reserve_tokens"].value = 26_000
    assert tuner.inert_notes.notes["reserve_tokens"].value == ""


def test_the_docstring_and_the_score_of_a_replay_say_so_too():
    assert "reserve_tokens: held by reserve_tokens_floor" in presets.fased.__doc__
    replay = ck.replay(ck.samples.path("chat"), presets.fased(reserve_tokens=8_000))
    assert "reserve_tokens has no effect" in ck.score(replay, loss=False)["note"]
