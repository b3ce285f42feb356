"""The contract of every preset: on arbitrary histories, and replayed over real sessions."""

from inspect import getdoc, signature

import pytest
from builders import assistant, step, user
from conftest import examples, sample
from histories import CHARS
from hypothesis import given, settings
from policy_contract import history_of, holds, kinds, made_of, messages, paired

from ctxkit import presets
from ctxkit.engine import run_replay
from ctxkit.errors import BadArguments, UnknownName
from ctxkit.policies import BasePolicy, Rules
from ctxkit.presets import preset, preset_differences
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(1500, 200, CHARS)
SMALL = {
    "fuseraft": {
        "trigger_turn_count": 6,
        "keep_recent_turns": 2,
        "max_tool_result_chars": 400,
        "max_in_turn_tool_pairs": 2,
        "max_in_turn_context_tokens": 900,
    },
    "tyrum": {"max_messages": 9},
    "ai": {"keep_recent_tokens": 100, "tool_call_cutoff": 2},
    "pulse_coder": {"keep_last_turns": 2, "compact_trigger": 300, "compact_target": 200},
    "fased": {
        "keep_recent_tokens": 100,
        "context_pruning": "cache-ttl",
        "ttl_seconds": 0,
        "keep_last_assistants": 1,
        "min_prunable_tool_chars": 0,
    },
    "pi": {"keep_recent_tokens": 100},
    "swe_agent_mask": {"n": 2},
    "codex": {"compact_user_message_max_tokens": 60},
    "claude_code": {},
    "gemini": {"function_response_token_budget": 60, "truncate_tool_output_threshold": 300},
    "openclaw": {
        "keep_recent_tokens": 100,
        "pruning": "cache-ttl",
        "ttl_seconds": 0,
        "keep_last_assistants": 1,
        "min_prunable_tool_chars": 0,
    },
    "opencode": {"preserve_recent_tokens": 150},
    "openhands": {"max_size": 8, "keep_first": 1},
    "langchain_summary": {"trigger": ("messages", 6), "keep": ("messages", 3)},
    "langchain_clear_tools": {"trigger": 100, "keep": 1, "clear_tool_inputs": True},
    "anthropic_clear_tools": {"trigger": 100, "keep": 1, "exclude_tools": ("bash",)},
    "inspect_edit": {"keep_tool_uses": 1, "keep_tool_inputs": False},
    "inspect_trim": {"threshold": 300},
    "inspect_summary": {},
    "openai_server": {"item_tokens": 40},
    "deepagents": {
        "trigger": ("messages", 3),
        "keep": ("messages", 3),
        "truncate_args_keep": ("messages", 1),
    },
    "strands": {"method": "summary", "preserve_recent_messages": 2},
    "adk": {"token_threshold": 50, "event_retention_size": 3},
    "semantic_kernel": {"target_count": 4, "threshold_count": 2},
    "agent_framework": {
        "tool_eviction_threshold": 0.1,
        "truncation_threshold": 0.3,
        "keep_last_tool_call_groups": 1,
        "max_output_tokens": 200,
    },
    "letta": {},
    "boise": {"protected_turns": 1},
    "cline": {"preserve_recent_tokens": 100},
    "roo": {},
    "goose": {},
    "ai_sdk": {"tool_calls": "before-last-2-messages"},
    "anthropic_compact": {"pause_after_compaction": True},
    "jev": {"preserve_recent_messages": 2, "truncate_head_chars": 40},
    "aider": {"max_chat_history_tokens": 300},
    "lcm": {"fresh_tail_count": 3, "leaf_chunk_tokens": 60, "fanout": 2, "context_threshold": 0.2},
    "none": {},
}
MODES = ["llm", "intent", "lossless", "hybrid", "window"]


def test_every_preset_is_held_to_the_contract():
    assert set(SMALL) == set(WINDOWS) == set(presets.names())
    assert presets.names()[:5] == ["fuseraft", "tyrum", "ai", "pulse_coder", "fased"]


@pytest.mark.parametrize("name", presets.names())
def test_a_policy_that_was_lent_no_summariser_writes_extracts(name):
    policy = preset(name).bare
    turns = [(user("x" * 300), *step(text="y" * 300), assistant("z" * 300)) for _ in range(30)]
    rows = [*(m for turn in turns for m in turn), user("now")]
    h = history_of(rows)
    assert policy is None or policy(h, ROOM).tokens <= h.tokens


@pytest.mark.parametrize("name", SMALL)
def test_the_contract_on_arbitrary_histories(name):
    rules = preset(name, **SMALL[name])

    @settings(max_examples=examples(20))
    @given(messages())
    def check(rows):
        for policy in (rules.policy, rules.pruning):
            if policy is not None:
                holds(
                    policy, history_of(rows), ROOM, rounds=5
                )  # a chain's later parts make work for the earlier ones

    check()


WINDOWS = {
    "fuseraft": [
        {
            "mode": m,
            "trigger_turn_count": 20,
            "keep_recent_turns": 4,
            "token_budget": 4000,
            "cutover_at": 100_000,
        }
        for m in MODES
    ],
    "tyrum": [{"context_window": 30_000}],
    "ai": [{"context_window": 0, "max_tokens": 4000}],
    "pulse_coder": [{"context_window_tokens": 6000}],
    "fased": [
        {
            "context_window": 40_000,
            "keep_recent_tokens": 3000,
            "context_pruning": "cache-ttl",
            "soft_trim_ratio": 0.01,
            "hard_clear_ratio": 0.02,
        }
    ],
    "pi": [{"context_window": 30_000, "keep_recent_tokens": 3000}],
    "swe_agent_mask": [{"n": 3}],
    "codex": [{"context_window": 40_000, "compact_user_message_max_tokens": 2000}],
    "claude_code": [
        {"context_window": 60_000},
        {"context_window": 60_000, "clear_tool_outputs": 3},
    ],
    "gemini": [
        {"context_window": 40_000},
        {
            "variant": "pipeline",
            "context_window": 60_000,
            "retained_tokens": 8000,
            "max_tokens": 20_000,
        },
    ],
    "openclaw": [
        {
            "context_window": 40_000,
            "keep_recent_tokens": 3000,
            "pruning": "cache-ttl",
            "soft_trim_ratio": 0.01,
            "hard_clear_ratio": 0.02,
        }
    ],
    "opencode": [
        {
            "context_window": 60_000,
            "limit_output": 8000,
            "prune": True,
            "prune_protect": 2000,
            "prune_minimum": 500,
        }
    ],
    "openhands": [{"max_size": 30}, {"max_tokens": 12_000}],
    "langchain_summary": [
        {"trigger": ("messages", 40)},
        {"trigger": ("tokens", 15_000), "keep": ("tokens", 3000)},
    ],
    "langchain_clear_tools": [{"trigger": 10_000, "clear_at_least": 2000}],
    "anthropic_clear_tools": [{"trigger": 10_000, "clear_at_least": 2000}],
    "inspect_edit": [{"threshold": 15_000}, {"threshold": 15_000, "keep_tool_inputs": False}],
    "inspect_trim": [{"threshold": 15_000}],
    "inspect_summary": [{"threshold": 15_000}],
    "openai_server": [
        {"compact_threshold": 15_000},
        {"compact_threshold": 15_000, "on_demand": True},
    ],
    "deepagents": [{"context_window": 40_000, "truncate_args_max_length": 200}],
    "strands": [
        {},
        {"window_size": 12, "per_turn": True, "pin_first": 1},
        {"method": "summary", "context_window": 40_000, "proactive_compression": 0.5},
    ],
    "adk": [
        {"compaction_interval": 3, "overlap_size": 1},
        {"token_threshold": 10_000, "event_retention_size": 8},
    ],
    "semantic_kernel": [{}, {"method": "truncation", "target_count": 9, "threshold_count": 4}],
    "agent_framework": [{"context_window": 40_000, "max_output_tokens": 4000}],
    "letta": [{"context_window": 40_000}, {"context_window": 40_000, "mode": "all"}],
    "boise": [{"context_window": 60_000}, {"context_window": 60_000, "deferred_apply": False}],
    "cline": [
        {"context_window": 40_000, "preserve_recent_tokens": 3000},
        {"version": "3", "context_window": 60_000},
    ],
    "roo": [{"context_window": 40_000}, {"context_window": 40_000, "auto_condense_context": False}],
    "goose": [{"context_window": 40_000}],
    "ai_sdk": [{}, {"tool_calls": "before-last-6-messages", "reasoning": "all"}],
    "anthropic_compact": [
        {"trigger": 50_000},
        {"trigger": 50_000, "pause_after_compaction": True},
        {"trigger": 9_000, "keep_turns": 2},
    ],
    "jev": [
        {"context_window": 40_000},
        {"context_window": 40_000, "scorer": lambda m: (len(m.id) % 2, 0.0)},
    ],
    "aider": [{"max_chat_history_tokens": 6000}],
    "lcm": [
        {"context_window": 40_000, "fresh_tail_count": 8, "leaf_chunk_tokens": 3000, "fanout": 3}
    ],
    "none": [{}],
}
CASES = [
    (name, quirks, more)
    for name, all_ in WINDOWS.items()
    for more in all_
    for quirks in ((False, True) if "quirks" in preset(name).parameters else (False,))
]


def test_every_part_of_a_preset_is_held_to_the_contract():
    """a policy or pruning that a preset brings along must be in force in one of the cases"""
    cases = [*SMALL.items(), *((name, more) for name, all_ in WINDOWS.items() for more in all_)]
    rules = [preset(name, **more) for name, more in cases]
    held = {kind for r in rules for kind in made_of((r.policy, r.pruning))}
    bases = {base for kind in kinds(BasePolicy, "presets") for base in kind.__mro__[1:]}
    assert kinds(BasePolicy, "presets") - bases <= held


@pytest.fixture(scope="module")
def sessions(real):
    from ctxkit.formats import read_all

    files = [p for p in real.rglob("*.json*") if p.stat().st_size < 400_000]
    read = [s for path in sample(sorted(files), 5) for s in read_all(path, progress=False)]
    return [s for s in read if s.calls][:8]


@pytest.mark.parametrize(("name", "quirks", "more"), CASES)
def test_real_sessions_stay_sound_under_every_preset(name, quirks, more, sessions):
    rules = preset(name, **more, **({"quirks": True} if quirks else {}))
    for session in sessions:
        try:
            done = run_replay(session, rules)
        except BadArguments as error:  # its system prompt alone is larger than this small window
            if "cannot hold the fixed part" not in str(error):
                raise
            continue
        late = set()
        for cut in done.compactions:
            paired(cut.was.messages, cut.new.messages, late)
            late |= unanswered(cut.was.messages) - unanswered(cut.new.messages)
        paired(done.log.messages, done.last_prompt().messages, late)


def unanswered(messages):
    """Return the calls that have no result among the messages."""
    answered = {m.call_id for m in messages if m.role == "tool"}
    return {c.id for m in messages for c in m.tool_calls} - answered


def test_presets_by_name():
    assert isinstance(preset("pulse-coder"), Rules)
    assert presets.preset is preset
    with pytest.raises(UnknownName, match="'fased'"):
        preset("fasd")
    with pytest.raises(UnknownName, match="'reserve_tokens'"):
        preset("pi", reserve_token=3)
    with pytest.raises(AttributeError):
        presets.nothing  # noqa: B018


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_is_explained_and_kept(name):
    make = getattr(presets, name)
    names = list(preset(name).parameters)
    told = getdoc(make)  # Python 3.13 takes the indent away by itself
    assert all(f"\n    {n}: " in told for n in names)
    assert preset(name).name == name


@pytest.mark.parametrize("name", ["fuseraft", "tyrum", "ai", "pulse_coder", "fased", "pi"])
def test_differences_are_told(name):
    assert all(d.topic and d.program and d.default for d in preset_differences(name))
    assert preset_differences(name)


@pytest.mark.parametrize(
    ("name", "settings_"),
    [
        ("ai", {"keep_recent_tokens": "x"}),
        ("pi", {"enabled": 1}),
        ("fased", {"mode": 3}),
        ("tyrum", {"max_turns": True}),
        ("swe_agent_mask", {"n": None}),
    ],
)
def test_a_setting_of_another_kind_is_refused_by_name(name, settings_):
    with pytest.raises(BadArguments, match=next(iter(settings_))):
        preset(name, **settings_)


def test_settings_are_taken_as_those_of_policies_are():
    """one name, or a list, where several are meant; a whole number of any kind"""
    rules = preset("anthropic_clear_tools", exclude_tools="bash", keep=2.0)
    assert rules.parameters["exclude_tools"] == ("bash",)
    assert rules.pruning == preset("anthropic_clear_tools", exclude_tools=["bash"], keep=2).pruning


@pytest.mark.parametrize("name", presets.names())
def test_every_setting_refuses_what_is_no_such_thing(name):
    """text for a number, a number for text, NaN: named in one sentence, whichever preset it is"""
    make = getattr(presets, name)
    for key, parameter in signature(make).parameters.items():
        kind = parameter.annotation.removesuffix(" | None")
        if kind in ("int", "float", "Natural", "Positive", "Proportion", "PositiveShare"):
            wrong = ["x", [], True, float("nan"), float("inf")]
        elif kind in ("bool", "str", "tuple[str, ...]"):
            wrong = [3.5, {}]
        elif kind.startswith("Literal["):
            wrong = ["x", 3.5, True, []]
        else:
            continue
        for value in wrong:
            with pytest.raises(BadArguments, match=f"{key} of preset '{name}'"):
                make(**{key: value})
