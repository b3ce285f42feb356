"""What a pruning's course says of all calls at once is what its calls say one by one."""

import msgspec
import numpy as np
import pytest
from conftest import sample
from contracts import messages as odd
from hypothesis import given, settings
from hypothesis import strategies as st
from talks_by_chance import Fours, by_chance

from ctxkit.engine import Run, advance, log_of, run
from ctxkit.history import History, Log
from ctxkit.policies import triggers
from ctxkit.policies.adaptive import AdaptiveTrim, Stage
from ctxkit.policies.budget import Budget
from ctxkit.policies.clear import Clear
from ctxkit.policies.digest import Excerpts
from ctxkit.policies.idle import CacheTtl
from ctxkit.policies.intermediate import Intermediate
from ctxkit.policies.offload import Offload
from ctxkit.policies.pairs import ToolPairs
from ctxkit.policies.prune import Cap, Prune
from ctxkit.policies.prunings import Prunings
from ctxkit.policies.rules import Rules
from ctxkit.policies.shorten import ConsumedReads, Outputs, Replies, Results
from ctxkit.policies.superseded import RepeatedCommands, Superseded
from ctxkit.policies.tombstones import Tombstones
from ctxkit.tokens import Room

PRUNINGS = {
    "prune": Prune(tool_calls="before-last-4-messages"),
    "prune all": Prune(tool_calls="all", reasoning="all"),
    "prune one": Prune(tool_calls="before-last-message", reasoning="before-last-message", empty_messages="keep"),
    "prune by tool": Prune(tool_calls="before-last-2-messages", tools=("read_*", "bash")),
    "tyrum": Prunings.of(Prune(tool_calls="before-last-4-messages"), Cap()),
    "cap": Cap(max_messages=9),
    "clear": Clear(keep_last=2),
    "clear some": Clear(keep_last=1, deny=("shell", "write_*"), min_chars=100),
    "clear in batches": Clear(keep_last=1, polling=3, at_least=50),
    "outputs": Outputs(max_chars=300),
    "excerpts": Excerpts(keep_last=1),
    "ai": Prunings.of(Outputs(max_lines=5, max_chars=400), Excerpts(keep_last=2, strategy="llm")),
    "offload": Offload(threshold=300),
    "fuseraft": Prunings.of(Offload(threshold=8000), ToolPairs(keep_pairs=1), AdaptiveTrim(stages=(300, 50))),
    "stages": Prunings.of(Results(max_chars=2000), AdaptiveTrim(stages=(400, 60), consumed_chars=30)),
    "a stage": Stage(1, 300, 50),
    "the last stage": Stage(3, None, 50),
    "pairs": ToolPairs(keep_pairs=1),
    "pairs in steps": ToolPairs(keep_pairs=1, step=3, from_chars=500),
    "pairs and clear": Prunings.of(Clear(keep_last=3), ToolPairs(keep_pairs=2, placeholder="-")),
    "clear in lines": Prunings.of(Clear(keep_last=1, placeholder="[{lines} lines]", deny=("shell",)), Excerpts()),
    "results": Results(max_chars=300, consumed_chars=20, overrides={"shell": 0, "read_file": 3000}),
    "reads": ConsumedReads(max_chars=10),
    "replies": Replies(max_chars=100, keep_last=2),
    "cuts": Prunings.of(Outputs(max_lines=3), Results(max_chars=200), Replies(max_chars=100)),
    "budget": Budget(max_chars=4000, step=2),
    "superseded": Superseded(min_chars=0),
    "superseded, much": Superseded(min_chars=3000, writers=("write_*",), whole_writers=("*",)),
    "commands": RepeatedCommands(tools=("shell", "bash")),
    "steps": Intermediate(max_chars=20, max_argument_chars=0),
    "in a turn": Prunings.of(
        Results(max_chars=2000), Superseded(min_chars=0), RepeatedCommands(), Intermediate(), ToolPairs(keep_pairs=4)
    ),
    "evicted": Tombstones(max_tokens=500, keep_last=1, manifest=False),
    "idle often": CacheTtl(
        ttl_seconds=20,
        keep_last_assistants=1,
        soft_trim_ratio=0.05,
        hard_clear_ratio=0.2,
        min_prunable_tool_chars=0,
        soft_trim_max_chars=300,
        soft_trim_head_chars=50,
        soft_trim_tail_chars=50,
    ),
    "idle": CacheTtl(min_prunable_tool_chars=0, soft_trim_ratio=0.1, hard_clear_ratio=0.3, keep_last_assistants=1),
}
POLICIES = {
    "none": None,
    "summary": lambda h, _room: h.summarise(h.safe(h.back(300)), 80, "full"),
    "blank": lambda h, _room: h.summarise(h.safe(h.back(300)), "", "full"),
    "clearing": lambda h, _room: h.shorten(np.flatnonzero(h.role("tool"))[:-2], "[gone]", "old"),
    "window": lambda h, _room: h.drop(h.safe(h.back(200)), "window", start=1),
}


def same(log, pruning, policy, room):
    """Assert that prompts and fresh tokens of every call are the same from the table and call by call."""
    due = None if policy is None else triggers.Above(room.limit // 2)
    plain, billed = (
        run(log, Rules(policy, due, pruning=p, counter=room.counter, window=room.limit, reserve=0))
        for p in (pruning.__call__, pruning)
    )
    assert hasattr(pruning, "traced_bill")
    assert billed.prompts.tolist() == plain.prompts.tolist()
    assert billed.fresh_tokens.tolist() == plain.fresh_tokens.tolist()
    assert [c.call for c in billed.cuts] == [c.call for c in plain.cuts]


@pytest.mark.parametrize("name", PRUNINGS)
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(sorted(POLICIES)), window=st.integers(1500, 9000))
def test_the_course_is_the_call_in_long_talks(name, seed, policy, window):
    log = log_of(by_chance(seed, 25), Rules(counter=Fours()))
    same(log, PRUNINGS[name], POLICIES[policy], Room(window, 0, Fours()))


@pytest.mark.parametrize("name", PRUNINGS)
@settings(max_examples=15)
@given(rows=odd(), policy=st.sampled_from(sorted(POLICIES)))
def test_the_course_is_the_call_in_odd_talks(name, rows, policy):
    same(Log.of(rows, Fours()), PRUNINGS[name], POLICIES[policy], Room(900, 0, Fours()))


def test_many_calls_over_the_window_are_given_the_first_stage_that_fits():
    """Stages that change from call to call, over more calls than are made one by one."""
    pruning = Prunings.of(Offload(threshold=30_000), AdaptiveTrim(stages=(400, 60), consumed_chars=30))
    seen = set()
    for seed in range(6):
        log = log_of(by_chance(seed, 60), Rules(counter=Fours()))
        done = run(log, Rules(pruning=pruning, counter=Fours(), window=4000))
        same(log, pruning, None, Room(4000, 0, Fours()))
        for call in range(log.calls):
            view = Offload(threshold=30_000)(History.start(log, call), Room(4000, 0, Fours()))
            fits = [stage(view, done.room).tokens <= 4000 for stage in pruning.parts[1].ladder]
            seen.add(0 if view.tokens <= 4000 else fits.index(True) if True in fits else 3)
    assert seen >= {0, 1, 2}


def test_a_chain_in_words_or_of_parts_says_its_course_too():
    parts = Clear(keep_last=3), Outputs(max_chars=300)
    for pruning in ("clear:keep_last=3 | outputs:max_chars=300", parts[0] | parts[1], Prunings.of(*parts)):
        made = Rules(pruning=pruning).pruning
        assert made == Prunings(parts)
        same(log_of(by_chance(1, 25), Rules(counter=Fours())), made, POLICIES["summary"], Room(5000, 0, Fours()))
    plain = Rules(pruning=Clear() | (lambda h, _room: h)).pruning
    assert not hasattr(plain, "traced_bill")


@pytest.mark.parametrize("step", [1, 7, 20])
def test_a_run_may_be_taken_in_pieces(step):
    log = log_of(by_chance(9, 50), Rules(counter=Fours()))
    rules = Rules(pruning=Clear(keep_last=2), counter=Fours())
    pieces, whole = Run(log, rules), run(log, rules)
    for stop in [*range(step, log.calls, step), log.calls]:
        advance(pieces, rules, stop)
    assert pieces.fresh_tokens.tolist() == whole.fresh_tokens.tolist()
    assert pieces.total == whole.total


def test_a_result_that_comes_to_stay_is_no_longer_cleared():
    log = Log.of(messages := list(by_chance(3, 12).messages), Fours())
    tools = [m for m in messages if m.role == "tool"]
    pruning = Clear(keep_last=0)
    run(log, Rules(pruning=pruning, counter=Fours()))
    log.append(msgspec.structs.replace(tools[0], id="late", pinned=True))
    log.open()
    same(log, pruning, None, Room(10**5, 0, Fours()))


def test_a_pruning_cannot_write_into_the_log():
    def careless(h, _room):
        h.sizes[:] = 0
        return h

    log = log_of(by_chance(3, 12), Rules(counter=Fours()))
    with pytest.raises(ValueError, match="read-only"):
        run(log, Rules(pruning=careless, counter=Fours()))
    assert log.column("tokens").tolist() == log.tokens.sizes


@pytest.mark.parametrize("policy", [Clear(keep_last=1), ToolPairs(keep_pairs=1), Excerpts(keep_last=1)])
def test_an_edit_may_write_what_the_pruning_wrote_before(policy):
    for seed in range(4):
        log = log_of(by_chance(seed, 25), Rules(counter=Fours()))
        same(log, policy, policy, Room(5000, 0, Fours()))


@pytest.fixture(scope="module")
def real_sessions(real):
    from ctxkit.readers.catalogue import read_all

    paths = sample(sorted(p for p in real.rglob("*.json*") if p.stat().st_size < 400_000), 6)
    return [s for path in paths for s in read_all(path, progress=False) if 3 < len(s.calls) < 150][:8]


@pytest.mark.parametrize("name", PRUNINGS)
def test_the_course_is_the_call_in_real_sessions(name, real_sessions):
    for session in real_sessions:
        log = log_of(session, Rules(counter=Fours()))
        limit = max(log.tokens.C) * 2 // 3
        if log.fixed >= limit:
            continue  # no rules could work there
        same(log, PRUNINGS[name], POLICIES["summary"], Room(limit, 0, Fours()))
        same(log, PRUNINGS[name], None, Room(limit, 0, Fours()))
