"""Clearing old tool results in place, with the cases of fuseraft's in-turn filters."""

from dataclasses import replace

import pytest
from builders import assistant, call, result, step, user
from histories import CHARS, ROOM, shown

from ctxkit.engine import run_rules
from ctxkit.errors import BadArguments
from ctxkit.policies import (
    CLEARED_PLACEHOLDER,
    CacheTtl,
    CharacterBudget,
    Clear,
    KeepNewestToolPairs,
    MessageLog,
    ReplyShortening,
    ResultEvictionOverBudget,
    Rules,
    count_chars,
)
from ctxkit.policies.result_clearing_and_cache_ttl import (
    EVICTED_PREFIX,
    PAIR_PLACEHOLDER,
    compute_stable_window_size,
)
from ctxkit.tokens import ContextBudget

LONG = "long result " * 50


def pairs(n, text=LONG, tool="read_file"):
    return [m for i in range(n) for m in step(tool, f"{text}{i}")]


def results(history):
    return [m.text for m in history.messages if m.role == "tool"]


@pytest.mark.parametrize(("n", "keep"), [(3, 5), (5, 5)])
def test_fu14_no_more_pairs_than_the_window_is_a_no_op(n, keep):
    """3 pairs keep 5, 5 pairs keep 5: the same history"""
    h = shown(user(), pairs(n))
    assert KeepNewestToolPairs(keep_pairs=keep)(h, ROOM) is h


def test_fu15_older_pairs_become_placeholders_with_their_ids():
    """5 pairs keep 2: the last two intact, the others a placeholder; call ids equal result ids"""
    h = shown(user(), pairs(5))
    new = KeepNewestToolPairs(keep_pairs=2)(h, ROOM)
    assert results(new)[:3] == [PAIR_PLACEHOLDER] * 3
    assert results(new)[3:] == results(h)[3:]
    asked = [c.id for m in new.messages for c in m.tool_calls]
    assert asked == [m.call_id for m in new.messages if m.role == "tool"]


def test_fu16_keep_no_pair_omits_all():
    """keep 0: all collapsed"""
    assert set(results(KeepNewestToolPairs(keep_pairs=0)(shown(user(), pairs(4)), ROOM))) == {
        PAIR_PLACEHOLDER
    }


@pytest.mark.parametrize(
    ("groups", "size"), [(10, 12), (12, 12), (13, 13), (19, 19), (20, 12), (27, 19)]
)
def test_fu17_the_stable_window_floats(groups, size):
    """StableWindowSize(min 12, step 8): 10→12, 12→12, 13→13, 19→19, 20→12, 27→19"""
    assert compute_stable_window_size(groups, 12, 8) == size


def test_fu18_a_step_of_eight_keeps_the_prefix():
    """over 40 rounds the prefix changes at least 30 times with step 1, at most 5 times with step 8"""

    def breaks(step_):
        policy, seen, n = KeepNewestToolPairs(keep_pairs=4, step=step_), [], 0
        for rounds in range(1, 41):
            now = results(policy(shown(user(), pairs(rounds)), ROOM))
            n += now[: len(seen)] != seen
            seen = now
        return n

    assert breaks(1) >= 30
    assert breaks(8) <= 5


def test_fu19_below_the_trigger_nothing_happens():
    """a trigger of characters that is not reached leaves all untouched; 10 characters collapse"""
    h = shown(user(), pairs(5))
    assert KeepNewestToolPairs(keep_pairs=1, from_chars=10**6)(h, ROOM) is h
    assert PAIR_PLACEHOLDER in results(KeepNewestToolPairs(keep_pairs=1, from_chars=10)(h, ROOM))


def test_fu20_the_budget_elides_the_oldest_until_it_fits():
    """30 results of 1,000 characters are trimmed to at most 10,000"""
    h = shown(user("u"), [m for _ in range(30) for m in step("bash", "y" * 1000)])
    new = CharacterBudget(max_chars=10_000)(h, ROOM)
    assert int(new.chars.sum()) <= 10_000
    assert results(new)[-1] == "y" * 1000


def test_fu21_a_budget_in_steps_keeps_the_prefix():
    """over 40 rounds a budget of 10,000 changes the prefix at least 25 times with step 1, at most 5 with step 8"""

    def breaks(step_):
        policy, seen, n = CharacterBudget(max_chars=10_000, step=step_), [], 0
        for rounds in range(1, 41):
            now = results(
                policy(
                    shown(
                        user(), [m for i in range(rounds) for m in step("bash", f"{i:04}" * 175)]
                    ),
                    ROOM,
                )
            )
            n += now[: len(seen)] != seen
            seen = now
        return n

    assert breaks(1) >= 25
    assert breaks(8) <= 5


def test_fu22_what_is_left_is_cut_when_eliding_is_not_enough():
    """phase 2: the rest share what the budget leaves, with a note that the output is not complete"""
    new = CharacterBudget(max_chars=1000)(shown(user("u"), step("bash", "z" * 5000)), ROOM)
    assert "[TRUNCATED HERE" in results(new)[0]
    assert int(new.chars.sum()) <= 1000


@pytest.mark.parametrize(
    "settings",
    [
        {"keep_last": 1},
        {"keep_last": 2, "deny": ("bash",)},
        {"keep_last": 0, "min_chars": 300},
        {"keep_last": 1, "polling": 3},
        {"keep_last": 1, "at_least": 300},
        {"keep_last": 2, "placeholder": "gone ({lines} lines)"},
    ],
)
def test_what_all_calls_are_sent_at_once_is_what_each_is_sent(settings):
    rows = [user(), *pairs(4), *pairs(3, text="short "), *pairs(3, tool="bash"), assistant("end")]
    policy = Clear(**settings)
    plain, at_once = (Rules(pruning=p) for p in (policy.__call__, policy))
    a, b = (run_rules(MessageLog.of(rows, CHARS), rules) for rules in (plain, at_once))
    assert a.prompts.tolist() == b.prompts.tolist()
    assert a.fresh_tokens.tolist() == b.fresh_tokens.tolist()


def test_all_but_the_last_results_are_cleared():
    new = Clear(keep_last=2)(shown(user(), pairs(5)), ROOM)
    assert [t == CLEARED_PLACEHOLDER for t in results(new)] == [True] * 3 + [False] * 2


def test_tools_can_be_allowed_and_denied_and_deny_wins():
    h = shown(user(), pairs(2, tool="exec"), pairs(2, tool="read"))
    assert results(Clear(keep_last=0, allow=("ex*",), deny=("EXEC",))(h, ROOM)) == results(h)
    assert (
        sum(t == CLEARED_PLACEHOLDER for t in results(Clear(keep_last=0, deny=("exec",))(h, ROOM)))
        == 2
    )


def test_a_single_name_is_not_taken_for_its_letters():
    assert Clear(deny="bash").deny == ("bash",)
    assert Clear(deny=["bash", "rm"]).deny == ("bash", "rm")
    with pytest.raises(BadArguments, match="names for deny"):
        Clear(deny=3)


def test_a_small_saving_is_not_worth_the_cache():
    h = shown(user(), pairs(5))
    assert Clear(keep_last=3, at_least=10_000)(h, ROOM) is h
    assert Clear(keep_last=3, at_least=100)(h, ROOM) is not h


def test_lines_are_counted_in_the_placeholder_and_only_once():
    policy = Clear(keep_last=0, placeholder="Old environment output: ({lines} lines omitted)")
    new = policy(shown(user(), step("bash", "row of text\n" * 30)), ROOM)
    assert results(new) == ["Old environment output: (30 lines omitted)"]
    assert policy(new, ROOM) is new


def test_polling_clears_in_batches():
    def cleared(n):
        return sum(
            t == CLEARED_PLACEHOLDER
            for t in results(Clear(keep_last=2, polling=4)(shown(user(), pairs(n)), ROOM))
        )

    assert [cleared(n) for n in range(2, 9)] == [0, 1, 1, 1, 1, 5, 5]


def test_short_results_and_pinned_ones_are_left():
    c = call()
    h = shown(user(), pairs(1, text=""), c, result(LONG, c, pinned=True), assistant())
    assert Clear(keep_last=0)(h, ROOM) is h


@pytest.mark.parametrize(
    "make",
    [
        lambda: Clear(keep_last=-1),
        lambda: Clear(polling=0),
        lambda: KeepNewestToolPairs(step=0),
        lambda: CharacterBudget(max_chars=0),
    ],
)
def test_settings_that_cannot_work_are_refused(make):
    with pytest.raises(BadArguments):
        make()


def test_no_names_allow_all_tools():
    h = shown(user(), pairs(4), assistant("end"), time=1e9)
    rule = CacheTtl(
        ttl_seconds=0,
        keep_last_assistants=1,
        min_prunable_tool_chars=0,
        hard_clear_ratio=0,
        soft_trim_ratio=0,
    )
    assert results(rule(h, ROOM)).count(CLEARED_PLACEHOLDER) == 4
    assert results(replace(rule, allow=())(h, ROOM)) == results(rule(h, ROOM))
    assert replace(rule, deny=("read*",))(h, ROOM) is h


@pytest.mark.parametrize("persists", [False, True])
def test_results_are_trimmed_where_the_prompt_has_the_share_of_the_windows_characters(persists):
    rule = CacheTtl(
        ttl_seconds=0,
        keep_last_assistants=1,
        soft_trim_ratio=0.5,
        soft_trim_max_chars=100,
        soft_trim_head_chars=20,
        soft_trim_tail_chars=20,
        hard_clear=False,
        persists=persists,
    )
    asked = call()
    log = [user(), asked, result("r" * 400, asked), assistant("end")]
    chars = sum(map(count_chars, log))
    h = shown(*log, user("u" * (2 - chars % 2)), time=1e9)
    window = (chars + 2 - chars % 2) // 2  # half of it, at four characters a token, is all
    trimmed = [
        len(results(rule(h, ContextBudget(window + more, 0, CHARS)))[0]) < 400 for more in (0, 1)
    ]
    assert trimmed == [True, False]


@pytest.mark.parametrize(("max_tokens", "evicted_n"), [(2_001, 0), (2_000, 3)])
def test_only_results_count_against_the_budget_of_results(max_tokens, evicted_n):
    """Replies that another part cuts before change nothing: four results have 8,004 characters."""
    log = MessageLog(CHARS)
    for _ in range(4):
        for message in (user(), assistant("word " * 800), *step("read_file", "x" * 2_001)):
            log.append(message)
    log.append(user())
    log.open()
    evict = ResultEvictionOverBudget(max_tokens=max_tokens, keep_last=1, manifest=False)
    sent = run_rules(log, Rules(pruning=ReplyShortening() | evict)).coming().messages
    assert all(len(m.text) < 2_100 for m in sent)  # the replies are cut
    assert [len(m.text) < 2_001 for m in sent if m.role == "tool"].count(True) == evicted_n


class EvictionCounter:
    """Counts ten tokens for a message, one for an evicted result, and some for the list."""

    name, source = "counts of this test", "estimated"

    def __init__(self, list_tokens):
        self.list_tokens = list_tokens

    def message(self, message):
        if message.text.startswith("[Context Manifest]"):
            return self.list_tokens
        return 1 if "evicted" in message.text else 10

    def __call__(self, text):
        return len(text)


@pytest.mark.parametrize(("list_tokens", "is_listed"), [(17, True), (18, False), (19, False)])
def test_the_list_of_results_is_appended_where_the_prompt_is_smaller_with_it(
    list_tokens, is_listed
):
    """Two evicted results save nine tokens each."""
    h = shown(user(), pairs(3), counter=EvictionCounter(list_tokens))
    new = ResultEvictionOverBudget(max_tokens=99, keep_last=1)(h, ROOM)
    assert [m.text.startswith(EVICTED_PREFIX) for m in new.messages if m.role == "tool"] == [
        *(True, True),
        False,
    ]
    assert new[-1].text.startswith("[Context Manifest]") == is_listed
    assert new.tokens == h.tokens - 18 + is_listed * list_tokens
