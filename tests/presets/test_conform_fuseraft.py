"""fuseraft: the FU cases that are not about a single policy (those are in tests/policies)."""

from itertools import pairwise

import pytest
from builders import assistant, call, result, session, step, user
from histories import CHARS, ROOM, shown, texts

import ctxkit as ck
from ctxkit import presets
from ctxkit.agent import ArtifactOffloader
from ctxkit.engine import RulesRun, advance_run
from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies import (
    AdaptiveTrim,
    FuseraftSummary,
    IntermediateReplyShortening,
    MessageLog,
    RepeatedCommands,
    ResultEvictionOverBudget,
    ResultOffload,
    Rules,
    Superseded,
    TrimStage,
    WithoutTools,
    find_artifact_in_stub,
)
from ctxkit.tokens import ContextBudget


def talk(n, chars=400):
    return [
        m
        for i in range(n)
        for m in (user(f"u{i} " + "x" * chars), assistant(f"a{i} " + "y" * chars))
    ]


def results(history):
    return [m.text for m in history.messages if m.role == "tool"]


def test_fu23_a_tail_of_ten():
    """15 messages, cap 10: ten are kept, the first is message 6; 3 messages are all kept"""
    rules = presets.fuseraft(max_tail_messages=10)
    assert texts(rules.pruning(shown([user(f"msg {i}") for i in range(1, 16)]), ROOM))[0] == "msg 6"
    few = shown([user(f"msg {i}") for i in range(3)])
    assert rules.pruning(few, ROOM) is few


def test_fu24_superseded_pairs_are_emptied_in_batches():
    """small stale results are kept below 65,536 characters, 70,000 are emptied; 0 does it at once"""

    def twice(n):
        return shown(
            user(),
            step("read_file", "x" * n, path="a"),
            step("read_file", "x" * n, path="a"),
            assistant(),
        )

    small = twice(1000)
    assert Superseded()(small, ROOM) is small
    assert (
        results(Superseded()(twice(70_000), ROOM))[0]
        == "[omitted — superseded by later identical call]"
    )
    assert results(Superseded(min_chars=0)(small, ROOM))[0].startswith("[omitted")
    written = shown(
        user(),
        step("write_file", "ok " * 50, path="a", content="1" * 900),
        step("write_file", "ok", path="A", content="2"),
    )
    new = Superseded(min_chars=0)(written, ROOM)
    assert new.messages[1].tool_calls[0].arguments == {
        "_note": "[superseded — later write_file for same path]"
    }
    assert new.messages[3].tool_calls[0].arguments["content"] == "2"
    named = Superseded(min_chars=0, writers=("Write_File",), whole_writers=("Write_File",))
    assert named(written, ROOM).messages == new.messages


def test_fu25_repeated_commands_leave_their_status():
    """the earlier run of the same command says succeeded, or failed with its exit status"""
    h = shown(
        user(),
        step("shell_run", "FAILED " * 20 + "\nexit code: 2", command="make"),
        step("shell_run", "ok " * 20, command="make"),
        step("shell_run", "ok " * 20, command="make"),
    )
    assert results(RepeatedCommands()(h, ROOM))[:2] == ["failed [EXIT 2]", "succeeded"]


def test_fu26_steps_on_the_way_are_cut():
    """text beyond 120 characters is omitted, argument values beyond 500 say that they are no real value"""
    c = call("write_file", path="a", content="z" * 900).tool_calls[0]
    h = shown(user(), assistant("t" * 400, c), result("ok", c), assistant("end"))
    new = IntermediateReplyShortening()(h, ROOM).messages[1]
    assert new.text == "t" * 120 + " [text omitted]"
    assert (
        new.tool_calls[0]
        .arguments["content"]
        .startswith("[ELIDED — 900 chars, NOT the real value.")
    )
    assert new.tool_calls[0].arguments["path"] == "a"


@pytest.mark.parametrize(("stage", "cap"), [(4000, 4100), (500, 600)])
def test_fu27_trimming_stages(stage, cap):
    """stage 1 has "context-trimmed" and at most 4,100 characters, stage 2 less; short results are unchanged"""
    h = shown(user(), step("bash", "x" * 9000), step("bash", "short"))
    new = results(TrimStage(max_chars=stage, consumed_chars=500)(h, ROOM))
    assert "context-trimmed" in new[0]
    assert len(new[0]) <= cap
    assert new[1] == "short"


def test_fu28_the_last_stage_has_no_tool_content():
    """stage 3 leaves no tool messages and no calls, but the words of a reply"""
    c = call("bash").tool_calls[0]
    new = WithoutTools()(shown(user("u"), assistant("I look.", c), result("x", c)), ROOM)
    assert texts(new) == ["u", "I look."]


def test_fu29_the_first_stage_that_fits_is_taken():
    """nothing while it fits; then the mildest stage that does"""
    h = shown(user(), step("bash", "x" * 9000))
    assert AdaptiveTrim()(h, ContextBudget(5000, 0, CHARS)) is h
    assert "context-trimmed" in results(AdaptiveTrim()(h, ContextBudget(1100, 0, CHARS)))[0]
    assert results(AdaptiveTrim()(h, ContextBudget(50, 0, CHARS))) == []


def test_fu30_results_over_their_budget_are_evicted():
    """100 characters, 1,000 tokens: unchanged; two of 1,000, budget 300, window 1: the first is a tombstone"""
    few = shown(user(), step("bash", "x" * 100))
    assert ResultEvictionOverBudget(max_tokens=1000)(few, ROOM) is few
    h = shown(
        user(), step("bash", "row " * 1000, command="ls " + "p" * 80), step("bash", "y" * 1000)
    )
    new = ResultEvictionOverBudget(max_tokens=300, keep_last=1)(h, ROOM)
    tomb = results(new)[0]
    assert tomb.startswith("[tool result — evicted: bash(ls ppp")
    assert "p" * 50 not in tomb
    assert '…"' in tomb
    assert "targeted ranges" in tomb
    assert "Active tool results (1):" in texts(new)[-1]
    assert "Superseded (1)" in texts(new)[-1]


def test_fu31_an_orphaned_result_is_labelled_by_its_id():
    """a result without a call is named by its call id"""
    h = shown(user(), result("z" * 4000, of="k9", tool="bash"), step("bash", "y"))
    assert "bash(k9)" in results(ResultEvictionOverBudget(max_tokens=300, keep_last=1)(h, ROOM))[0]


def test_fu32_large_results_are_offloaded():
    """threshold 10, 500 x: a stub and one artifact; images and short results untouched"""
    h = shown(user(), step("read_file", "x" * 500, path="src/Large.cs"), step("bash", "ok"))
    new = ResultOffload(threshold=10)(h, ROOM)
    artifact = find_artifact_in_stub(new.messages[2])
    assert {n: m.text for n, m in ResultOffload(threshold=10).artifacts(h.messages).items()} == {
        artifact: "x" * 500
    }
    assert results(new)[0].splitlines()[:3] == [
        "[result offloaded — 500 chars stored to artifact store]",
        "Tool: read_file | path=src/Large.cs",
        f"Artifact: {artifact}",
    ]
    assert results(new)[1] == "ok"


@pytest.mark.parametrize(
    ("tool", "of", "line"),
    [
        ("bash", "k9", "Tool: bash | "),
        (None, "k9", "Tool: unknown | "),
        (None, "c1", "Tool: read_file | path=a.py"),
        ("bash", "c1", "Tool: bash | path=a.py"),
    ],
)
def test_fu32_a_stub_names_the_tool_of_the_result_else_that_of_its_call(tool, of, line):
    """k9 is the id of no call"""
    answers = [result("y" * 9, "c1", "read_file")] if of == "k9" else []
    h = shown(user(), call("read_file", "c1", path="a.py"), *answers, result("x" * 500, of, tool))
    assert results(ResultOffload(threshold=10)(h, ROOM))[-1].splitlines()[1] == line


def test_fu33_what_cannot_be_saved_stays():
    """no directory: the result is unchanged"""

    def full(*_):
        raise OSError("disk full")

    log = MessageLog.of([user(), *step("read_file", "x" * 500), assistant("so")], CHARS)
    live = RulesRun(log, Rules(pruning=ResultOffload(threshold=10)))
    advance_run(live, live.rules, log.calls)
    assert find_artifact_in_stub(live.last_prompt().messages[-1])
    sent = ArtifactOffloader(full).store_artifacts(live, live.last_prompt())
    assert [m.parts for m in sent.messages] == [m.parts for m in live.history.at(1).messages]


def words(answer="said by it"):
    asked = []

    def maker(passage):
        asked.append(sum(len(m.text) for m in passage.messages))
        return answer

    return maker, asked


@pytest.mark.parametrize(
    ("mode", "mark", "calls"),
    [
        ("intent", "INTENT-DERIVED RECONSTRUCTION", 0),
        ("lossless", "CONTEXT RECONSTRUCTION", 0),
        ("llm", "CONVERSATION SUMMARY", 1),
        ("hybrid", "CONTEXT RECONSTRUCTION", 1),
    ],
)
def test_fu34_modes_and_their_model_calls(mode, mark, calls):
    """intent and lossless ask no model; llm and hybrid ask once"""
    maker, asked = words()
    new = FuseraftSummary(mode=mode, keep_replies=2, summariser=maker)(shown(talk(6)), ROOM)
    assert mark in texts(new)[0]
    assert len(asked) == calls
    assert ("said by it" in texts(new)[0]) is bool(calls)


def test_fu35_a_summary_call_that_is_too_large_is_made_smaller():
    """7 x 8,000 characters with a limit of 30,000 succeed, each prompt smaller than the one before"""
    asked = []

    def small(passage):
        asked.append(sum(len(m.text) for m in passage.messages))
        if asked[-1] > 30_000:
            raise ModelError("prompt is too long", overflow=True)
        return "SUM"

    new = FuseraftSummary(keep_replies=1, summariser=small)(
        shown([make("x" * 8000) for make in (user, assistant) * 4][:7], user("q"), assistant("a")),
        ROOM,
    )
    assert "SUM" in texts(new)[0]
    assert len(asked) > 1
    assert asked == sorted(asked, reverse=True)
    assert len(set(asked)) == len(asked)


def test_fu36_always_too_large_is_a_failure_after_five_calls():
    """five calls and then a marker of failure; nothing is lost silently"""
    asked = []

    def never(passage):
        asked.append(1)
        raise ModelError("prompt is too long", overflow=True)

    new = FuseraftSummary(keep_replies=1, summariser=never)(shown(talk(6)), ROOM)
    assert len(asked) == 5
    assert texts(new)[0].startswith("[COMPACTION FAILED — covers turns 1–")


@pytest.mark.parametrize("error", [ModelError("401"), RuntimeError("401")])
def test_fu37_other_errors_fail_at_once(error):
    """a 401 is asked once; in hybrid mode the evidence is alone"""
    asked = []

    def refused(passage):
        asked.append(1)
        raise error

    assert (
        "Summary generation failed: 401"
        in texts(FuseraftSummary(keep_replies=1, summariser=refused)(shown(talk(6)), ROOM))[0]
    )
    assert len(asked) == 1
    alone = texts(
        FuseraftSummary(mode="hybrid", keep_replies=1, summariser=refused)(shown(talk(6)), ROOM)
    )[0]
    assert alone.startswith("[CONTEXT RECONSTRUCTION")
    assert "FAILED" not in alone


def test_fu38_cancellation_is_passed_on():
    """a cancelled summary is no failure to hide"""

    def cancelled(passage):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FuseraftSummary(keep_replies=1, summariser=cancelled)(shown(talk(6)), ROOM)


def test_fu39_the_program_keeps_messages_the_document_replies():
    """KeepRecentTurns 4: the program keeps four messages, the preset four replies with their questions"""
    maker, _ = words()
    assert (
        len(FuseraftSummary(keep_replies=4, quirks=True, summariser=maker)(shown(talk(9)), ROOM))
        == 5
    )
    assert len(FuseraftSummary(keep_replies=4, summariser=maker)(shown(talk(9)), ROOM)) == 9
    one = FuseraftSummary(keep_replies=1, quirks=True, summariser=maker)(shown(talk(9)), ROOM)
    assert [m.text for m in one.messages][1:] == [shown(talk(9))[-1].text]
    most = FuseraftSummary(keep_replies=99, quirks=True, summariser=maker)(shown(talk(9)), ROOM)
    assert [m.text for m in most.messages][1:] == [m.text for m in shown(talk(9))][1:]


def test_fu40_prefix_blocks_stand_before_the_summary_in_order():
    """symbols, reasoning and exploration, each only where the session holds it"""
    maker, _ = words()
    rows = [
        user("go " * 200),
        assistant("ok " * 200, thinking="because"),
        *step("write_file", "ok", path="a.py", content="def run(): ..."),
        *step("grep", "x " * 300, pattern="TODO"),
        *talk(2),
    ]
    text = texts(FuseraftSummary(keep_replies=1, summariser=maker)(shown(rows), ROOM))[0]
    places = [
        text.index(word)
        for word in (
            "[SYMBOL DEPENDENCY GRAPH",
            "[REASONING EXCERPTS",
            "[EXPLORATION HISTORY",
            "said by it",
        )
    ]
    assert places == sorted(places)
    plain = texts(
        FuseraftSummary(
            keep_replies=1,
            include_symbols=False,
            include_reasoning=False,
            include_exploration=False,
            summariser=maker,
        )(shown(rows), ROOM)
    )[0]
    assert not any(word in plain for word in ("GRAPH", "EXCERPTS", "EXPLORATION"))


@pytest.mark.parametrize("mode", ["llm", "hybrid"])
def test_fu41_the_summariser_goes_by_the_change_log(mode):
    """the record of writes and commands is in what it is told, headed as authoritative"""
    told = []
    rows = [
        user("go " * 300),
        *step("write_file", "ok", path="a.py"),
        *step("bash", "bad\nexit code: 1", command="make"),
        *talk(2),
    ]
    policy = FuseraftSummary(mode=mode, keep_replies=1,
                       summariser=lambda p: told.append(p.instructions) or "S")  # fmt: skip
    policy(shown(rows), ROOM)
    assert "AUTHORITATIVE CHANGE LOG" in told[0]
    assert "  a.py" in told[0]
    assert "make [FAILED]" in told[0]


def test_fu42_the_last_handoff_signal_is_said_again():
    """a signal that a compaction removed is pinned at the end, once; one that is still there is not doubled"""
    maker, _ = words()
    rows = [user("go " * 300), assistant("HANDOFF TO TESTER", agent="Dev"), *talk(3)]
    policy = FuseraftSummary(keep_replies=1, signals=("HANDOFF TO TESTER",), summariser=maker)
    assert (
        texts(policy(shown(rows), ROOM))[-1]
        == "[Resume: pre-compaction routing signal from Dev]\nHANDOFF TO TESTER"
    )
    assert texts(policy(shown([*rows, user("HANDOFF TO TESTER")]), ROOM))[-1] == "HANDOFF TO TESTER"


def run(messages, **settings):
    rules = presets.fuseraft(adaptive_trim=False, offload_chars=0, summariser="fixed:5", **settings)
    log = MessageLog.of(messages, CHARS, estimator=rules.estimator)
    return advance_run(RulesRun(log, rules), rules, log.calls)


def test_fu43_replies_count_and_one_turn_is_let_pass():
    """the trigger counts replies; the call after a compaction is let pass"""
    done = run(talk(40), trigger_turn_count=10, keep_recent_turns=3)
    assert done.compactions[0].call == 10
    assert all(
        b.call - a.call > 1 for a, b in zip(done.compactions, done.compactions[1:], strict=False)
    )


def test_fu44_window_mode_drops_pairs_without_a_message():
    """oldest pairs go until the estimate is within the budget; no summary"""
    done = run(talk(40), mode="window", token_budget=2000)
    assert done.compactions
    assert {m.role for c in done.compactions for m in c.new.messages} == {"user", "assistant"}
    assert all(
        c.new.estimated <= 2000 and c.new.messages[0].role == "user" for c in done.compactions
    )


def test_fu45_anti_thrash_guards_only_the_turn_count():
    """F76, F77: Once it is closed, turns compact no more, until as many new ones came as make a
    compaction due; the program's never opens again. The cut-over is not guarded.
    """
    settings = {
        "trigger_turn_count": 4,
        "keep_recent_turns": 3,
        "anti_thrash_min_savings_ratio": 1.0,
        "anti_thrash_window": 1,
    }
    held = run(talk(30), **settings, quirks=True)
    assert len(held.compactions) == 1
    again = [cut.call for cut in run(talk(30), **settings).compactions]
    assert [b - a for a, b in pairwise(again)] == [4] * (len(again) - 1) != []
    assert len(run(talk(30), **settings, cutover_at=5000).compactions) > 1


def test_fu46_warnings_come_once_a_cycle():
    """warn_at leaves one note until the next compaction"""
    done = run(talk(30), warn_at=2000, cutover_at=9000)
    assert len(done.warned) == len(done.compactions) + 1


@pytest.mark.parametrize("above", [0, 1])
@pytest.mark.parametrize("replay_chars", [0, None], ids=["pruned", "not pruned"])
def test_a_sum_that_is_reached_warns_and_cuts_over(above, replay_chars):
    """F85, F89: At the very sum, and not only above it; a token below it nothing is due."""
    sizes = run(talk(30), max_replay_chars=replay_chars).sizes(0, 12)
    budget = {"warn_at": sum(sizes[:6]) + above, "cutover_at": sum(sizes) + above}
    done = run(talk(30), **budget, mode="intent", max_replay_chars=replay_chars)
    assert done.warned[0][0] == 6 + above
    assert done.compactions[0].call == 12 + above


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"keep_recent_turns": 50}, "must lie below trigger_turn_count"),
        ({"trigger_turn_count": 0}, "1 or more"),
        ({"warn_at": 10, "cutover_at": 5}, "must lie below cutover_at"),
        ({"mode": "lossles"}, "llm, intent, lossless, hybrid or window"),
        ({"anti_thrash_min_savings_ratio": 1.5}, "between 0 and 1"),
        ({"cutover_at": -1}, "0 or more"),
    ],
)
def test_fu47_settings_are_checked_at_the_start(settings, why):
    """keep below trigger, warning below cut-over, shares between 0 and 1"""
    with pytest.raises(BadArguments, match=why):
        presets.fuseraft(**settings)


def test_fu48_the_programs_windows_are_always_on():
    """with quirks 12 pairs in steps of 8 and 200,000 characters; else they are off unless set"""
    names = [type(p).__name__ for p in presets.fuseraft(quirks=True).pruning.parts]
    assert names == [
        "ResultOffload",
        "Superseded",
        "RepeatedCommands",
        "IntermediateReplyShortening",
        "KeepNewestToolPairs",
        "CharacterBudget",
        "AdaptiveTrim",
    ]
    assert [type(p).__name__ for p in presets.fuseraft().pruning.parts] == [
        "ResultOffload",
        "ReplyShortening",
        "AdaptiveTrim",
    ]


REFUSED = "prompt is too long: 213462 tokens > 200000 maximum"


def refused(mode, error=REFUSED):
    """What a compaction writes after the model refused a prompt, and how often a model was asked for it."""
    maker, asked = words()
    rules = presets.fuseraft(mode=mode, trigger_turn_count=9, keep_recent_turns=1, summariser=maker)
    h = shown(
        [
            *talk(3),
            user("go on"),
            *step("write_file", "ok", path="a.py"),
            assistant(error=error),
            user("again"),
        ]
    )
    assert rules.trigger(h, ROOM) is (error is REFUSED)
    return texts(rules.policy.using(rules.summariser)(h, ROOM))[0], len(asked)


@pytest.mark.parametrize(
    ("mode", "mark"),
    [
        ("llm", "INTENT-DERIVED"),
        ("hybrid", "INTENT-DERIVED"),
        ("intent", "INTENT-DERIVED"),
        ("lossless", "CONTEXT"),
    ],
)
def test_fu49_after_a_refused_prompt_no_model_is_asked(mode, mark):
    """ConversationCompactorPreferDeterministic: llm and hybrid turn to intent, lossless stays; no summary call"""
    text, asked = refused(mode)
    assert text.startswith(f"[{mark}")
    assert asked == 0


@pytest.mark.parametrize("mode", ["llm", "hybrid"])
def test_fu50_after_another_error_the_model_is_asked(mode):
    """the flag false: the summary is the model's"""
    text, asked = refused(mode, error="500 internal server error")
    assert "said by it" in text
    assert asked == 1


def test_fu51_a_replay_turns_to_intent_only_where_a_prompt_was_refused():
    """the reason context_exceeded; a compaction by the turn count is a summary again"""
    rows = [*talk(3), user("q"), assistant(error=REFUSED), *talk(12)]
    rules = presets.fuseraft(trigger_turn_count=9, keep_recent_turns=1, anti_thrash_window=0)
    again = ck.replay(session(*rows), rules)
    marks = [m.text.split(" — ")[0] for e in again.edits for m in e.inserted if m.role == "summary"]
    assert marks[0] == "[INTENT-DERIVED RECONSTRUCTION"
    assert "[CONVERSATION SUMMARY" in marks[1:]
