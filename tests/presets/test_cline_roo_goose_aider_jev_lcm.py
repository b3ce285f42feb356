"""Cline, Roo, Goose, Anthropic's compaction, Jev, Aider and LCM: the systems' own numbers."""

import pytest
from builders import assistant, call, result, step, user
from histories import CHARS, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.presets.shared_summaries_and_clearing import DropOlderHalf
from ctxkit.presets.systems.cline import get_reserve_for_window
from ctxkit.session import get_plain_text
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(100_000, 0, CHARS)


def talk(n):
    return [m for i in range(n) for m in (user(f"u{i}"), assistant(f"a{i}"))]


@pytest.mark.parametrize(
    ("window", "free"),
    [
        (64_000, 27_000),
        (128_000, 30_000),
        (200_000, 40_000),
        (1_000_000, 40_000),
        (100_000, 20_000),
    ],
)
def test_cline_3_holds_so_much_free(window, free):
    """context-window-utils.ts: three windows by name, else the larger of window - 40,000 and 0.8 of it"""
    assert get_reserve_for_window(window) == free


@pytest.mark.parametrize(
    ("n", "far", "gone"),
    [(10, False, 4), (12, False, 4), (14, False, 6), (10, True, 6), (4, False, 0)],
)
def test_cline_3_drops_an_even_number(n, far, gone):
    """getNextTruncationRange: floor((n - 2) / 4) * 2, or floor((n - 2) * 3 / 4 / 2) * 2"""
    assert DropOlderHalf().count_removed(n, far) == gone


def test_cline_3_keeps_the_first_pair():
    rules = presets.cline(version="3")
    left = texts(rules.policy(shown(talk(7), counter=CHARS), ROOM))
    assert left == ["u0", "a0", *(f"{r}{i}" for i in range(4, 7) for r in "ua")]


def test_cline_never_summarises_the_last_request():
    """findCutIndex: the cut stays at or before the last turn's start"""
    rows = [*talk(4), user("last"), *step("bash", "x" * 900), *step("bash", "y" * 900)]
    rules = presets.cline(preserve_recent_tokens=10, summariser=lambda p: "S")
    assert texts(rules.policy(shown(rows, counter=CHARS), ROOM))[:2] == ["S", "last"]


def test_cline_is_due_at_nine_tenths_of_nine_tenths():
    """CONTEXT_WINDOW_INPUT_RATIO and COMPACTION_TRIGGER_RATIO"""
    rules = presets.cline(context_window=200_000)
    share, _ = rules.trigger.parts
    assert share.tokens(rules.context_budget(shown(user("x")).log)) == 162_000
    h = shown(user("x" * 4 * 161_999), counter=CHARS)
    one_more = shown(h.messages[0], user("xxxx"))
    assert [rules.trigger(at, rules.context_budget(at.log)) for at in (h, one_more)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("more", "free"),
    [({}, 20_000), ({"reserved": 5000}, 5000), ({"limit_input": 28_000}, 20_000)],
)
def test_opencode_2_holds_its_own_tokens_free(more, free):
    """2 holds 20,000 free, whatever a reply may have: a window of 30,000 is enough"""
    assert presets.opencode(version="2", context_window=30_000, **more).reserve == free
    with pytest.raises(BadArguments, match="leaves no room"):
        presets.opencode(version="2", context_window=free)


@pytest.mark.parametrize(("n", "gone"), [(10, 4), (5, 2), (4, 0), (3, 0)])
def test_roo_hides_half_but_the_first(n, gone):
    """truncateConversation: floor((n - 1) * 0.5), made even"""
    assert (
        DropOlderHalf(keep_first=1, quarter=False, pairs="all").count_removed(n, far=True) == gone
    )


def test_roo_starts_afresh():
    """after a condense the model sees the summary alone"""
    rules = presets.roo(summariser=lambda p: "S")
    assert texts(rules.policy(shown(talk(5), counter=CHARS), ROOM)) == ["S"]


@pytest.mark.parametrize("percent", [4, 101])
def test_roo_refuses_other_shares(percent):
    """MIN_CONDENSE_THRESHOLD 5, MAX 100"""
    with pytest.raises(BadArguments, match="5 and 100"):
        presets.roo(auto_condense_context_percent=percent)


def test_goose_says_the_last_request_again():
    """compact_messages: summary, continuation, the most recent message of the user"""
    rules = presets.goose(summariser=lambda p: "S" * 3)
    new = rules.policy(
        shown([*talk(3), user("do it"), *step("bash", "x" * 900)], counter=CHARS), ROOM
    )
    assert texts(new)[0].startswith("SSS")
    assert texts(new)[0].endswith("do it")
    waiting = rules.policy(shown([*talk(30), user("do it")], counter=CHARS), ROOM)
    assert texts(waiting)[-1] == "do it"
    assert "do it" not in texts(waiting)[0]


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_goose_at_nought_or_one_waits_for_an_overflow(threshold):
    """check_if_compaction_needed: disabled at <= 0 and >= 1"""
    rules = presets.goose(context_window=100, auto_compact_threshold=threshold)
    h = shown(user("x" * 4000), counter=CHARS)
    assert not rules.trigger(h, rules.context_budget(h.log))


def test_anthropic_takes_no_trigger_below_50_000():
    """150,000 by default, 50,000 at least"""
    assert presets.anthropic_compact().parameters["trigger"] == 150_000
    with pytest.raises(BadArguments, match="50,000"):
        presets.anthropic_compact(trigger=49_999)


def test_anthropic_puts_the_block_in_the_place_of_all():
    rules = presets.anthropic_compact(summariser=lambda p: "S")
    assert texts(rules.policy(shown(talk(4), counter=CHARS), ROOM)) == ["S"]
    paused = presets.anthropic_compact(pause_after_compaction=True, summariser=lambda p: "S")
    assert texts(paused.policy(shown(talk(4), counter=CHARS), ROOM)) == ["S", "u3", "a3"]


def test_anthropic_keeps_recent_turns_on_demand():
    rules = presets.anthropic_compact(trigger=9_000, keep_turns=2, summariser=lambda p: "S")
    kept = texts(rules.policy(shown(talk(4), counter=CHARS), ROOM))
    assert kept == ["S", "u2", "a2", "u3", "a3"]
    none = presets.anthropic_compact(trigger=9_000, keep_turns=0, summariser=lambda p: "S")
    assert texts(none.policy(shown(talk(4), counter=CHARS), ROOM)) == ["S"]
    with pytest.raises(BadArguments, match="keep_turns"):
        presets.anthropic_compact(keep_turns=1, pause_after_compaction=True)


def rows_of(n, chars=1000):
    out = [user("task")]
    for i in range(n):
        c = call("read", id=f"c{i}", path="a")
        out += [c, result("z" * chars, c), assistant(f"said {i}")]
    return out


def test_jev_keeps_all_text_and_cuts_old_results():
    """preserveRecentMessages 6, truncateHeadChars 300"""
    new = presets.jev().policy(shown(rows_of(4), counter=CHARS), ROOM)
    lengths = [len(get_plain_text(m)) for m in new.messages if m.role == "tool"]
    assert lengths[-2:] == [1000, 1000]
    assert all(300 < n < 420 for n in lengths[:2])
    assert [m.text for m in new.messages if m.text.startswith("said")] == [
        f"said {i}" for i in range(4)
    ]


NOTHING = presets.jev(preserve_recent_messages=0, scorer=lambda m: (0.0, 0.0)).policy


def test_jev_leaves_a_result_that_is_little_longer_than_its_head():
    """300 and a slack of 120 characters"""
    for chars, cut in ((420, False), (421, True)):
        new = presets.jev().policy(shown(rows_of(4, chars), counter=CHARS), ROOM)
        assert ("cut 121 characters" in texts(new)[2]) is cut


@pytest.mark.parametrize("why", ["pinned", "pending"])
def test_jev_leaves_results_that_stay_whatever_the_scorer_says(why):
    stays, goes = call(), call()
    rows = [user("x"), stays, result("y" * 900, stays, **{why: True}), goes, result("z", goes)]
    new = NOTHING(shown(rows, counter=CHARS), ROOM)
    assert new.messages == tuple(rows[:3])


def test_jev_drops_no_other_call_of_the_same_id():
    """some logs name calls again with each reply"""
    first, again = call(id="c0"), call(id="c0")
    rows = [user("x"), first, result("goes", first), again, result("y", again)]
    one = presets.jev(
        preserve_recent_messages=0, scorer=lambda m: (0.0, 0.0) if m.text == "goes" else (1.0, 1.0)
    )
    new = one.policy(shown(rows, counter=CHARS), ROOM)
    assert new.messages == (rows[0], *rows[3:])


def test_jev_drops_calls_that_the_scorer_lets_go():
    """keepCall below the threshold: the call goes with its result"""
    new = presets.jev(scorer=lambda m: (0.4, 0.4)).policy(shown(rows_of(4), counter=CHARS), ROOM)
    assert [m.role for m in new.messages].count("tool") == 2
    kept = presets.jev(scorer=lambda m: (0.0, 0.5))
    h = shown(rows_of(4), counter=CHARS)
    assert kept.policy(h, ROOM) is h


def test_aider_keeps_less_than_half_and_ends_the_head_with_a_reply():
    """ChatSummary.summarize: tail below max_tokens // 2, the head ends with an assistant"""
    rules = presets.aider(max_chat_history_tokens=100, summariser=lambda p: "S")
    rows = [m for i in range(6) for m in (user("u" * 60), assistant("a" * 60))]
    new = rules.policy(shown([*rows, user("now")], counter=CHARS), ROOM)
    assert [m.role for m in new.messages] == ["summary", *("user", "assistant") * 2, "user"]


def test_lcm_makes_leaves_and_condenses_them():
    """leaves of a chunk each, and one of the next depth where there are as many as the fanout"""
    asked = []
    rules = presets.lcm(
        fresh_tail_count=2,
        leaf_chunk_tokens=75,
        fanout=3,
        context_threshold=0.1,
        summariser=lambda p: asked.append({m.role for m in p.messages}) or "S",
    )
    rows = [m for i in range(8) for m in (user("u" * 100), assistant("a" * 100))]
    new = rules.policy(shown(rows, counter=CHARS), ContextBudget(500, 0, CHARS))
    assert {"summary"} in asked
    assert [m.role for m in new.messages].count("summary") < 3
    assert texts(new)[-1] == "a" * 100
