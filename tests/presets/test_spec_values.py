"""Defaults, names, formats and places that the five documents state, each held to the letter.

A statement without its number or its name is a weaker one, so these are here with both.
"""

from __future__ import annotations

import json

import pytest
from builders import assistant, result, session, step, tool_call, usage, user

import ctxkit as ck
from ctxkit.agent import Workspace
from ctxkit.policies import (
    AdaptiveTrim,
    KeepNewestToolPairs,
    OldResultsDigest,
    ResultExcerpts,
    Rules,
    format_reasoning_block,
    make_failure_marker,
    write_tool_call_lines,
)
from ctxkit.presets import preset, preset_differences
from ctxkit.session import Message, Text

FUSERAFT = {"max_chars_per_history_message": 8_000, "anti_thrash_min_savings_ratio": 0.10,
            "anti_thrash_window": 10, "offload_chars": 40_000, "trigger_turn_count": 50,
            "keep_recent_turns": 10, "include_symbol_graph": True}  # fmt: skip
AI = {"max_messages": 50, "max_tokens": 8_000, "keep_recent": 5, "keep_recent_tokens": 20_000,
      "reserve_tokens": 16_384, "tool_call_cutoff": 10, "tool_summary_strategy": "llm",
      "auto_compact": True, "max_lines": 2_000, "max_bytes": 50 * 1024, "max_chars": 200 * 1024,
      "large_output_threshold": 200 * 1024, "truncate_mode": "head_tail"}  # fmt: skip
PULSE_CODER = {"context_window_tokens": 64_000, "keep_last_turns": 6, "max_compaction_attempts": 2}
FASED = {"mode": "safeguard", "identifier_policy": "strict"}


def defaults(system, names):
    parameters = preset(system).parameters
    return {name: parameters[name] for name in names}


def test_fuserafts_defaults_are_its_documents():
    """F55, F75, F76, F101: The numbers that hold where a file says none."""
    assert defaults("fuseraft", FUSERAFT) == FUSERAFT


def test_ais_defaults_are_its_documents():
    """A1, A2, A3, A4, A5, A6, A7, A8, A20, A22: The numbers that hold where a file says none."""
    assert defaults("ai", AI) == AI


def test_pulse_coders_defaults_are_its_documents():
    """P1, P4, P5: The numbers that hold where no variable is set."""
    assert defaults("pulse_coder", PULSE_CODER) == PULSE_CODER


def test_faseds_defaults_are_its_documents():
    """D4, D12: The mode and the policy that hold where a file says none."""
    assert defaults("fased", FASED) == FASED


VARIABLES = {"CONTEXT_WINDOW_TOKENS": ("context_window_tokens", 9_000),
             "COMPACT_TRIGGER": ("compact_trigger", 5_000), "COMPACT_TARGET": ("compact_target", 3_000),
             "KEEP_LAST_TURNS": ("keep_last_turns", 2),
             "MAX_COMPACTION_ATTEMPTS": ("max_compaction_attempts", 3)}  # fmt: skip


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_of_pulse_coder_has_its_name(name):
    """P6: CONTEXT_WINDOW_TOKENS, COMPACT_TRIGGER, COMPACT_TARGET, KEEP_LAST_TURNS and
    MAX_COMPACTION_ATTEMPTS set what they say.
    """
    parameter, value = VARIABLES[name]
    variables = {"CONTEXT_WINDOW_TOKENS": "9000", name: str(value)}
    rules = ck.load_rules(variables, system="pulse_coder")
    assert rules.parameters[parameter] == value


KEYS = {"mode": ("mode", "default"), "reserveTokens": ("reserve_tokens", 9_000),
        "keepRecentTokens": ("keep_recent_tokens", 8_000),
        "reserveTokensFloor": ("reserve_tokens_floor", 7_000),
        "maxHistoryShare": ("max_history_share", 0.3), "timeoutSeconds": ("timeout_seconds", 60),
        "identifierPolicy": ("identifier_policy", "off"),
        "identifierInstructions": ("identifier_instructions", "keep ABC-1")}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_each_key_of_fased_stands_where_its_document_says(tmp_path, key):
    """D5, D6, D7, D8, D9, D11, D13, D14: Keys of agents.defaults.compaction in fased.json."""
    name, value = KEYS[key]
    path = tmp_path / "fased.json"
    path.write_text(json.dumps({"agents": {"defaults": {"compaction": {key: value}}}}))
    assert ck.load_rules(path).parameters[name] == value


def test_intents_say_what_not_to_do_again_and_what_to_retry():
    """F66: Lines marked done or failed, and a note: what is done is not done again, what failed is
    tried again where the task needs it.
    """
    said = write_tool_call_lines(
        session(user("Go"), *step("write_file", "ok", path="a.py")).messages, [0] * 3
    )
    assert 'OPERATIONS (chronological):\n  ✓ write_file → "a.py" (turn 1, main)\n' in said
    note = said.partition("RESUMPTION NOTE")[2]
    assert "not run operations marked ✓ again" in note
    assert "marked ✗ failed: try them again where the task needs" in note


def test_the_mark_of_a_failed_summary_sends_agents_to_the_disk():
    """F79: The marker names the range, and says that disk and not memory is to be believed."""
    marker = make_failure_marker([0, 1, 2], "the model is down")
    assert marker.startswith("[COMPACTION FAILED — covers turns 1–3]")
    assert "on disk, not from memory" in marker


def test_a_turns_thinking_is_cut_to_some_500_tokens():
    """F70: `[REASONING EXCERPTS` has each compacted turn's thinking, of about 500 tokens."""
    block = format_reasoning_block([assistant("ok", thinking="y" * 9_000)], [0])
    assert block.startswith("[REASONING EXCERPTS")
    assert block.count("y") == 2_000  # four characters a token
    assert "[TRUNCATED — 9,000 chars total]" in block


def test_a_text_only_view_takes_nine_tenths_of_a_log_full_of_results():
    """F43: Text alone is a tenth or less of what an agent in a session of many tools reads."""
    log = session(*(m for i in range(20) for m in
                    (user(f"Ask {i}"), *step("bash", "x" * 4_000), assistant("ok", usage=usage(10)))))  # fmt: skip
    views = [
        ck.replay(log, preset("fuseraft", text_only=t, trigger_turn_count=500))
        for t in (False, True)
    ]
    sizes = [sum(item.tokens for item in view.sent(-1)) for view in views]
    assert sizes[1] < 0.1 * sizes[0]


def test_a_pair_beyond_the_window_has_the_documents_placeholder():
    """F94: An older result becomes `[result omitted — sliding window]`, under the same id."""
    log = session(user("Go"), *step("ls", "x" * 900), *step("ls", "y" * 900), assistant("ok"))
    sent = ck.replay(log, Rules(pruning=KeepNewestToolPairs(keep_pairs=1))).sent(None)
    older = next(i.message for i in sent if i.message.role == "tool")
    assert older.text == "[result omitted — sliding window]"
    assert (older.id, older.call_id) == (log.messages[2].id, log.messages[2].call_id)


def test_the_stages_of_the_retry_are_the_documents():
    """F103, F104: 4,000 characters, 500, no tools; a read that was overtaken 500 at each."""
    first, second, last = AdaptiveTrim().steps
    assert (first.max_chars, second.max_chars) == (4_000, 500)
    assert {first.consumed_chars, second.consumed_chars} == {500}
    assert type(last).__name__ == "WithoutTools"


def test_files_of_a_run_have_fuserafts_names(tmp_path):
    """F100, F109, F111: Snapshots, page and offloaded results, below the program's folder."""
    place = Workspace(tmp_path)
    paths = [place.snapshots("abc123"), place.chart("abc123"), place.results("abc123")]
    assert [p.relative_to(place.folder).as_posix() for p in paths] == [
        "logs/ctx_snapshots_abc123.jsonl",
        "logs/ctx_viz_abc123.html",
        "artifacts/sessions/abc123/tool-results",
    ]


def test_ais_summary_and_digest_begin_as_its_document_says():
    """A38, A40: `[Previous conversation summary]` is first, `[Compaction tool digest]` last."""
    log = session(*(m for i in range(40) for m in
                    (user("ask " * 900), assistant("ok", usage=usage(4_000 * i)))))  # fmt: skip
    done = ck.replay(log, ck.presets.ai(context_window=60_000, summariser="extractive"))
    first = next(i.message for i in done.sent(-1) if i.message.role != "system")
    assert first.text.startswith("[Previous conversation summary]\n")
    log = session(user("Go"), *step("ls", "a " * 900), *step("ls", "b " * 900), assistant("ok"))
    sent = ck.replay(log, Rules(pruning=OldResultsDigest(keep_last=1))).sent(None)
    assert sent[-1].message.text.startswith("[Compaction tool digest]\n")


def test_pulse_coders_summary_begins_as_its_document_says():
    """P13, P14: An assistant's message that begins with `[COMPACTED_CONTEXT]`."""
    log = session(*(m for i in range(20) for m in
                    (user("ask " * 900), assistant("ok", usage=usage(4_000 * i)))))  # fmt: skip
    rules = ck.presets.pulse_coder(context_window_tokens=20_000, summariser="extractive")
    texts = [
        i.message for i in ck.replay(log, rules).sent(-1) if "[COMPACTED_CONTEXT]" in i.message.text
    ]
    assert texts[0].text.startswith("[COMPACTED_CONTEXT]")


def test_an_unknown_window_leaves_ai_its_fixed_limit_and_half_of_it():
    """A2, A13, A14: Without a window the limit is 8,000 tokens, of which half is kept."""
    talk = [{"role": r, "content": "word " * 800} for _ in range(30) for r in ("user", "assistant")]
    kept = ck.fit(talk, "ai")
    assert sum(len(m["content"]) for m in kept[1:]) // 4 <= 4_000
    assert 2 <= len(kept) < 8
    assert ck.fit(talk, "ai", limit=200_000) == talk
    assert len(ck.fit(talk, ck.presets.ai(max_tokens=20_000))) > len(kept)
    assert ck.presets.ai(context_window=128_000).unknown_window == 8_000 + 16_384


def test_a_share_of_the_history_parts_what_a_model_is_asked_and_says_where_it_does_nothing():
    """D10: maxHistoryShare acts on summaries by a model; without one the preset says why not."""

    def passages(share):
        asked = []

        def write(passage):
            asked.append(len(passage.messages))
            return "short"

        rules = ck.presets.fased(
            context_window=60_000, reserve_tokens=10_000, reserve_tokens_floor=10_000,
            keep_recent_tokens=5_000, max_history_share=share, summariser=write,
        )  # fmt: skip
        assert len(ck.replay(ck.read(ck.samples.path("billing")), rules).edits) == 1
        return asked

    small, large = passages(0.1), passages(0.9)
    assert len(small) > len(large)
    assert max(small) < max(large)
    [row] = [d for d in preset_differences("fased") if d.topic == "maxHistoryShare"]
    assert "changes nothing" in row.default


@pytest.mark.parametrize("mode", ["intent", "lossless", "window"])
def test_a_mode_without_a_model_is_billed_no_summary(mode):
    """F84: Neither live nor in a replay does a text worked out from the record cost a call."""
    settings = {"token_budget": 20_000} if mode == "window" else {"trigger_turn_count": 30}
    again = ck.replay(
        ck.read(ck.samples.path("billing")), preset("fuseraft", mode=mode, **settings)
    )
    assert again.edits
    assert ck.score(again).detail["summaries_usd"] == 0
    with_model = ck.replay(
        ck.read(ck.samples.path("billing")), preset("fuseraft", mode="llm", trigger_turn_count=30)
    )
    assert ck.score(with_model).detail["summaries_usd"] > 0.1


def test_window_mode_never_drops_an_earlier_summary():
    """F68: Summaries at the beginning are pinned: pairs go from behind them."""
    first = Message(id="s1", role="summary", parts=(Text("SUMMARY 1 " + "s" * 3_000),))
    pairs = [
        m for n in range(40) for m in (user(f"u{n} " + "x" * 400), assistant(f"a{n} " + "y" * 400))
    ]
    rules = preset("fuseraft", mode="window", token_budget=2_500)
    done = ck.replay(session(first, *pairs), rules)
    assert len(done.edits) > 1
    assert done.view()[0].parts == first.parts
    assert 1 < len(done.view()) < 20
    assert all(first.id not in edit.targets for edit in done.edits)


def test_window_mode_pins_a_summary_behind_other_messages():
    """F68: Wherever a summary stands it is pinned, and what it takes is missing for the newest."""
    pairs = [
        m for n in range(40) for m in (user(f"u{n} " + "x" * 400), assistant(f"a{n} " + "y" * 400))
    ]
    pinned = Message(id="s1", role="summary", parts=(Text("SUMMARY 1 " + "s" * 3_000),))
    rules = preset("fuseraft", mode="window", token_budget=2_500)
    done = ck.replay(session(*pairs[:4], pinned, *pairs[4:]), rules)
    assert len(done.edits) > 1
    assert all(pinned.id not in edit.targets for edit in done.edits)
    assert [m.parts for m in done.view() if m.role == "summary"] == [pinned.parts]
    assert not {m.id for m in pairs[:4]} & {m.id for m in done.view()}
    assert done.edits[-1].tokens_after <= 2_500


@pytest.mark.parametrize(
    ("settings", "trigger", "call"),
    [
        ({"trigger_turn_count": 8}, "message_count", 8),
        # each message has 500 tokens, so call n sends 500 (2 n + 1), and all calls before it 500 n²
        ({"mode": "window", "token_budget": 5_000}, "window_size", 5),
        ({"trigger_turn_count": 500, "cutover_at": 20_000}, "cumulative_budget", 7),
    ],
)
def test_each_of_the_conditions_after_a_turn_compacts_by_itself(settings, trigger, call):
    """F119: TriggerTurnCount, TokenBudget in mode window, CutoverAt; F58 is the fourth."""
    pairs = [m for n in range(20) for m in (user("x" * 2_000), assistant("y" * 2_000))]
    keep = {} if "mode" in settings else {"keep_recent_turns": 3}
    rules = preset("fuseraft", **settings, **keep).but(counter="chars/4")
    replay = ck.replay(session(*pairs), rules)
    assert {edit.trigger for edit in replay.edits} == {trigger}
    assert ck.frame(replay, per="compaction")["call"].iloc[0] == call


def sent_after_compaction(done):
    """Return the prompt of the call that a first compaction stands before."""
    call = ck.frame(done, per="compaction")["call"].iloc[0]
    return [item.message for item in done.sent(int(call))]


def test_ai_parts_by_tokens_and_else_by_messages():
    """A35: KeepRecentTokens parts old from recent where it is above 0, else KeepRecent messages."""
    messages = [m for n in range(20) for m in (user("x" * 4_000), assistant("y" * 4_000))]
    by = {
        tokens: ck.replay(
            session(*messages),
            ck.presets.ai(context_window=40_000, keep_recent_tokens=tokens, keep_recent=5,
                          summariser="fixed:5"),
        )
        for tokens in (8_000, 0)
    }  # fmt: skip
    kept = {t: len(sent_after_compaction(done)) - 1 for t, done in by.items()}
    assert kept[0] == 5
    assert kept[8_000] == 8


def test_pulse_coder_parts_at_the_users_words():
    """P12: What is recent begins with a user's message, and stays as it was."""
    log = session(*(m for i in range(20) for m in (user(f"ask {i} " + "x" * 4_000),
                    *step("bash", "y" * 4_000), assistant(f"done {i}"))))  # fmt: skip
    rules = ck.presets.pulse_coder(context_window_tokens=40_000, summariser="fixed:5")
    done = ck.replay(log, rules)
    sent = sent_after_compaction(done)
    recent = sent[1:]
    assert sum(m.role == "user" for m in recent) == 6
    assert recent[0].role == "user"
    whole = {m.id: m.parts for m in log.messages}
    assert all(m.parts == whole[m.id] for m in recent)


def test_tyrums_pruning_touches_no_words():
    """T29, T30: Results go for a call; what the user and the assistant said stays, and the record."""
    talk = [m for n in range(30) for m in (user(f"ask {n}"), *step("bash", "y" * 3_000),
            assistant(f"said {n}"))]  # fmt: skip
    log = session(*talk)
    before = [m.parts for m in log.messages]
    done = ck.replay(log, ck.presets.tyrum(context_window=1_000_000))
    sent = [item.message for item in done.sent(-1)]
    words = [m.text for m in talk if m.role in ("user", "assistant") and m.text]
    assert [m.text for m in sent if m.role in ("user", "assistant") and m.text] == words[:-1]
    results = [m for m in sent if m.role == "tool" and m.text == "y" * 3_000]
    assert 0 < len(results) < 30
    assert [m.parts for m in log.messages] == before


def test_ais_rule_keeps_800_characters_of_head_and_tail():
    """A33: 800 characters in all, from both ends."""
    call = tool_call("bash", "c1", command="make")
    log = session(user("go"), assistant("", call), result("é" * 3_000 + "ü" * 3_000, call),
                  *step("ls", "x"), assistant("done"))  # fmt: skip
    rules = ck.policies.Rules(pruning=ResultExcerpts(keep_last=1, strategy="heuristic"))
    texts = [item.message.text for item in ck.replay(log, rules).sent(-1)]
    [text] = [t for t in texts if "é" in t]
    assert text.count("é") + text.count("ü") == 800
    assert min(text.count("é"), text.count("ü")) > 200
