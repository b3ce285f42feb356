"""Where the shipped `PiSummary` cuts: the PI cases (from running Pi 0.58.3), and any history."""

import pytest
from builders import assistant, result, tool_call, user
from histories import ROOM
from hypothesis import given
from hypothesis import strategies as st
from pi_oracle import COSTED, Cut, pi

from ctxkit.policies import History, MessageLog, PiSummary, find_first_since_compaction
from ctxkit.tokens import PI

A = (["user", "assistant"] * 3, [10] * 6)
B = (
    ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"],
    [10, 5, 50, 5, 10, 5, 100],
)
C = (["user", "assistant", "change", "change", "user", "assistant"], [10, 10, 0, 0, 10, 10])
D = (["user", "assistant", "bash", "assistant"], [10] * 4)
G = (["user"] + ["assistant"] * 3, [100] * 4)


class Entries:
    """Pi's entries as rows of a log; those without a message are none, as in the reader."""

    def __init__(self):
        self.kinds, self.sizes, self.log, self.entry_of = [], [], MessageLog(PI), []
        self.calls = []

    def add(self, kinds, sizes):
        for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
            if kind in COSTED:
                self.log.append(self.message(kind, kinds[i + 1 :]), size)
                self.entry_of.append(len(self.kinds))
            self.kinds.append(kind)
            self.sizes.append(size)
        return self

    def message(self, kind, coming):
        if kind == "tool":
            return result("-", self.calls.pop(0))
        if kind == "assistant":
            n = next((i for i, k in enumerate(coming) if k != "tool"), len(coming))
            self.calls = [tool_call() for _ in range(n)]
            return assistant("-", *self.calls)
        return user("-", kind="" if kind == "user" else kind)

    def row(self, entry):
        """The first row at or after an entry."""
        return next(r for r, e in enumerate(self.entry_of) if e >= entry)

    def shown(self):
        return History.start(self.log, self.log.open())


def cut_by(policy, entries, history, start=0):
    """The shipped cut in the oracle's words: the entry kept first, and where the split turn began.

    Nothing cut is the first entry.
    """
    first = policy.find_cut(history, ROOM)
    if not first:
        return Cut(start)
    turn = policy.find_split_turn(history, first)
    row, began = history.row(first), history.row(turn)
    split = entries.kinds[entries.entry_of[row]] == "assistant"
    return Cut(entries.entry_of[row], entries.entry_of[began] if split else -1)


def shipped(kinds, sizes, keep, **settings):
    entries = Entries().add(kinds, sizes)
    return cut_by(PiSummary(keep_tokens=keep, quirks=True, **settings), entries, entries.shown())


def summarised(kinds, sizes, keep):
    """How many messages each summary is made from."""
    policy = PiSummary(keep_tokens=keep, quirks=True)
    history = Entries().add(kinds, sizes).shown()
    return [len(p.messages) for p in policy.passages(history, policy.find_cut(history, ROOM))]


@pytest.mark.parametrize(
    ("keep", "cut"),
    [
        (1, (5, 4)),
        (10, (5, 4)),
        (11, (4, -1)),
        (20, (4, -1)),
        (21, (3, 2)),
        (30, (3, 2)),
        (40, (2, -1)),
        (59, (0, -1)),
        (60, (0, -1)),
        (61, (0, -1)),
    ],
)
def test_pi1_alternating_turns(keep, cut):
    """cuts fall on the message at which the tokens to keep are reached, users unsplit"""
    assert shipped(*A, keep) == pi(*A, keep) == cut


@pytest.mark.parametrize(
    ("keep", "cut"), [(110, (4, -1)), (120, (3, 0)), (150, (3, 0)), (190, (0, -1))]
)
def test_pi3_cuts_move_forward_from_a_tool_result(keep, cut):
    """a cut never begins with a tool result"""
    assert shipped(*B, keep) == pi(*B, keep) == cut


@pytest.mark.parametrize("keep", [50, 100])
def test_pi4_a_large_last_result_blocks_the_cut(keep):
    """a trailing tool result as large as what is kept: nothing is cut"""
    assert shipped(*B, keep) == pi(*B, keep) == (0, -1)


def test_pi5_entries_before_a_user_message_hide_it():
    """a model change before the user message: kept by Pi too; the same messages are kept"""
    assert pi(*C, 20) == (2, 0)
    assert shipped(*C, 20) == (4, -1)
    assert summarised(*C, 20) == [2]


def test_pi6_a_command_of_the_user_is_a_split_with_an_empty_prefix():
    """a bash entry as the cut: all before it is in one summary, and nothing is left for a prefix"""
    assert pi(*D, 20) == (2, 2)
    assert shipped(*D, 20) == (2, -1)
    assert summarised(*D, 20) == [2]


@pytest.mark.parametrize(
    ("keep", "cut"), [(50, (3, 0)), (150, (2, 0)), (250, (1, 0)), (350, (0, -1))]
)
def test_pi7_one_giant_turn_is_split(keep, cut):
    """a turn of many replies is cut between them"""
    assert shipped(*G, keep) == pi(*G, keep) == cut


def test_the_oracle_cuts_nothing_where_it_may_not():
    assert pi(["tool", "tool"], [1, 1], 1) == (0, -1)
    assert pi([], [], 1) == (0, -1)


# -- any history ---------------------------------------------------------------------------------

STEPS = st.one_of(
    st.sampled_from([("user",), ("bash",), ("custom",), ("change",)]),
    st.integers(0, 3).map(lambda n: ("assistant", *("tool",) * n)),
)


@st.composite
def entries(draw, least=0):
    """Kinds and sizes of Pi's entries: results follow their reply."""
    kinds = [kind for step in draw(st.lists(STEPS, min_size=least, max_size=14)) for kind in step]
    sizes = [draw(st.sampled_from([0, 1, 7, 40, 300])) if k in COSTED else 0 for k in kinds]
    return kinds, sizes


def same(policy, made, history, cut, start):
    """Assert that the cut and what is summarised are Pi's."""
    rows = [r for r, e in enumerate(made.entry_of) if start <= e < cut.first]
    first = policy.find_cut(history, ROOM)
    if not rows:
        assert first == 0
        return
    assert history.row(first) == rows[-1] + 1
    passages = policy.passages(history, first)
    taken = [[history.row(p) for p in passage.positions] for passage in passages]
    kind = made.kinds[made.entry_of[rows[-1] + 1]]
    head = [r for r in rows if kind == "assistant" and 0 <= cut.turn <= made.entry_of[r]]
    old = rows[: len(rows) - len(head)]
    assert taken == ([old, head] if old and head else [rows])


@given(entries(), st.integers(1, 700))
def test_the_shipped_cut_is_the_oracles(given_, keep):
    made = Entries().add(*given_)
    policy = PiSummary(keep_tokens=keep, quirks=True, summariser=lambda _: "S", must_shrink=False)
    same(policy, made, made.shown(), pi(made.kinds, made.sizes, keep), 0)


@given(entries(), entries(least=1), st.integers(1, 300), st.integers(1, 700))
def test_the_shipped_cut_after_a_compaction_is_the_oracles(before, after, at, keep):
    made = Entries().add(["user", "assistant"], [40, 40]).add(*before)
    again = PiSummary(keep_tokens=at, quirks=True, summariser=lambda _: "S", must_shrink=False)
    first = again(made.shown(), ROOM)
    start = len(made.kinds) + 1
    if first.steps:
        made.add(["compaction"], [0])
    else:
        start = 0
    made.add(["assistant"], [3]).add(*after)
    history = first.at(made.log.open())
    assert bool(find_first_since_compaction(history)) == bool(start)
    policy = PiSummary(keep_tokens=keep, quirks=True)
    same(policy, made, history, pi(made.kinds, made.sizes, keep, start), start)
