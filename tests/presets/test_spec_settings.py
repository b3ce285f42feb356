"""Keys, switches and stages that the five documents state, each as its document states it."""

from __future__ import annotations

import json

import pytest
from builders import assistant, session, step, usage, user
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.presets import preset
from ctxkit.session import Attachment, Message, Text, ToolSchema

COUNT = ck.tokens.get_counter("chars/4")
KEYS_OF_AI = {"MaxMessages": ("max_messages", 61), "MaxTokens": ("max_tokens", 9_100),
              "KeepRecent": ("keep_recent", 7), "KeepRecentTokens": ("keep_recent_tokens", 15_000),
              "ReserveTokens": ("reserve_tokens", 12_000), "ToolCallCutoff": ("tool_call_cutoff", 8),
              "ToolSummaryStrategy": ("tool_summary_strategy", "heuristic"),
              "AutoCompact": ("auto_compact", False)}  # fmt: skip


@pytest.mark.parametrize("key", KEYS_OF_AI)
def test_each_of_ais_eight_keys_is_read(tmp_path, key):
    """A3, A6, A9: Each key of its configuration sets what it is named for."""
    name, value = KEYS_OF_AI[key]
    assert preset("ai").parameters[name] != value
    path = tmp_path / "ai.json"
    path.write_text(json.dumps({"compactor": {key[0].lower() + key[1:]: value}}))
    assert ck.load_rules(path, system="ai").parameters[name] == value


def read_by(*tools, chars=3_000):
    """Return a session in which each tool gives so many characters, and a later turn asks on."""
    calls = [m for tool in tools for m in step(tool, "y" * chars, path=f"{tool}.txt")]
    return session(user("Go"), *calls, assistant("Read."), user("And on"), assistant("Done."))


def results_sent(log, **settings):
    done = ck.replay(log, preset("fuseraft", **settings))
    return [item.message.text for item in done.sent(-1) if item.message.role == "tool"]


def test_an_override_acts_beside_a_length_for_all_tools_alone():
    """F39: ToolResultCharOverrides without MaxToolResultChars cuts nothing; with it, 0 is whole."""
    log = read_by("search_content", "grep_file", "shell_run")
    overrides = {"search_content": 2_000, "grep_file": 0}
    alone = results_sent(log, tool_result_char_overrides=overrides)
    assert [text.count("y") for text in alone] == [3_000] * 3
    both = results_sent(log, tool_result_char_overrides=overrides, max_tool_result_chars=800)
    assert [text.count("y") for text in both] == [2_000, 3_000, 800]


def test_results_of_all_tools_are_cut_at_one_length():
    """F42: What a shell, a search and any other tool gave is cut at MaxToolResultChars."""
    tools = ("shell_run", "grep_file", "http_get", "my_tool")
    texts = results_sent(read_by(*tools), max_tool_result_chars=900)
    assert [text.count("y") for text in texts] == [900] * 4


def test_a_large_result_never_enters_and_a_medium_one_is_cut_when_it_is_sent_again():
    """F102: Both are on: above 40,000 characters a stub, below them MaxToolResultChars."""
    large = step("shell_run", "z" * 40_001, path="l")
    medium = step("shell_run", "y" * 40_000, path="m")
    log = session(user("Go"), *large, *medium, assistant("Read."), user("On"), assistant("Done."))
    stub, cut = results_sent(log, max_tool_result_chars=8_000)
    assert stub.startswith("[result offloaded — 40,001 chars stored to artifact store]\n")
    assert (stub.count("zz"), cut.count("y")) == (0, 8_000)
    assert "32,000 chars omitted" in cut


def summary_of(mode, **settings):
    """Return the text of a compaction of a session that writes one file and searches others."""
    body = "def made(x):\n  return x\n"
    log = session(
        user("Go"), *step("write_file", "ok", path="a.py", content=body), assistant("Wrote."),
        user("Look"), *step("grep", "none", path="b.py", pattern="def sought(x):\n"), assistant("Saw."),
        *(m for n in range(6) for m in (user(f"ask {n} " + "x" * 900), assistant(f"reply {n} " + "y" * 900))),
    )  # fmt: skip
    rules = preset("fuseraft", mode=mode, trigger_turn_count=6, keep_recent_turns=2,
                   summariser=lambda passage: "Said by the model.", **settings)  # fmt: skip
    done = ck.replay(log, rules)
    return next(m.text for m in done.view() if m.role == "summary")


def test_the_graph_lists_what_written_files_define_and_no_other_file():
    """F72: On unless set; a definition that was searched for stands in no file of the session."""
    text = summary_of("llm")
    graph = text.partition("[SYMBOL DEPENDENCY GRAPH")[2]
    assert "SymbolDefinition (def): made" in graph
    assert "sought" not in graph
    assert "SYMBOL DEPENDENCY GRAPH" not in summary_of("llm", include_symbol_graph=False)


def test_hybrid_has_the_reconstruction_before_the_words_of_the_model():
    """F63: What lossless gives stands whole before what the model says."""
    evidence, _, _ = summary_of("lossless").partition("\n\n[SYMBOL")
    text = summary_of("hybrid")
    assert text.startswith(evidence[:200])
    assert 0 < text.index("CONTEXT RECONSTRUCTION") < text.index("Said by the model.")


@pytest.mark.parametrize("off", ["anti_thrash_window", "anti_thrash_min_savings_ratio"])
def test_each_of_the_two_settings_at_0_takes_the_guard_away(off):
    """F78: AntiThrashWindow or AntiThrashMinSavingsRatio at 0: no compaction is held back."""
    log = session(*(m for n in range(90) for m in (user("x" * 400), assistant("y" * 400))))
    settings = {"mode": "intent", "trigger_turn_count": 4, "keep_recent_turns": 3, "quirks": True,
                "anti_thrash_min_savings_ratio": 1.0, "anti_thrash_window": 1}  # fmt: skip
    held = ck.replay(log, preset("fuseraft", **settings))
    free = ck.replay(log, preset("fuseraft", **{**settings, off: 0}))
    assert len(held.edits) == 1
    assert len(free.edits) > 12


def test_calls_results_and_attachments_fill_the_window():
    """T3: A call, its result, an image and a sound each make the prompt longer."""

    def size(*more):
        log = session(user("Go"), *more, assistant("Done."))
        return ck.report(log, counter=COUNT).prompt_tokens

    asked, given = step("bash", "y" * 4_000, command="x" * 2_000)
    assert size(asked) >= size() + 500
    assert size(asked, given) >= size(asked) + 1_000
    for kind in ("image", "audio", "document"):
        part = Attachment(kind=kind, media_type="x/y", data="aGVsbG8=")
        assert size(Message(role="user", id="m", parts=(Text("see"), part))) >= size() + 1_000


def test_a_report_names_each_tool_schema_and_the_largest_is_first():
    """T9: The schemas stand by name with their sizes, the largest first."""
    schemas = tuple(ToolSchema(name=n, chars=c) for n, c in (("a", 40), ("b", 4_000), ("c", 400)))
    report = ck.report(replace(session(user("Go")), tools=schemas), counter=COUNT)
    rows = [(p.name, p.tokens) for p in report.parts if p.group == "tool schemas"]
    assert rows == [("b", 1_000), ("c", 100), ("a", 10)]


def test_a_summary_stays_and_a_pruned_result_is_back_in_the_record():
    """D3: A compaction is an entry of the log; pruning leaves no entry and acts for one call."""
    log = session(*(replace(m, time=10.0 * n + 1_000 * (n // 5)) for n in range(30)
                    for m in (user(f"ask {n}"), *step("bash", "y" * 9_000),
                              assistant("ok", usage=usage(2_000 * n)))))  # fmt: skip
    rules = preset("fased", context_window=60_000, summariser="extractive",
                   context_pruning="cache-ttl")  # fmt: skip
    done = ck.replay(log, rules)
    prompts = [done.sent(n) for n in range(len(done.calls))]
    pruned = [[i.message for i in sent if i.pruned] for sent in prompts]
    assert {m.role for messages in pruned for m in messages} == {"tool"}
    whole_ids = [{i.message.id for i in sent if not i.pruned} for sent in prompts]
    for messages, whole_in_next in zip(pruned, whole_ids[1:], strict=False):
        assert {m.id for m in messages} <= whole_in_next
    assert {e.kind for e in done.edits} == {"summarised"}
    assert {type(e).__name__ for e in done.log} == {"Message", "Edit"}
    whole = {m.id: m.parts for m in log.messages}
    assert all(m.parts == whole[m.id] for m in done.messages if m.id in whole)
