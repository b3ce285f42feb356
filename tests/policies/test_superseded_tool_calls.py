"""`Superseded` empties nothing below its threshold, and everything at once from it on."""

from __future__ import annotations

from builders import assistant, result, tool_call, user
from histories import shown
from random_sessions import Fours

from ctxkit.policies import History, MessageLog, Schedule, ScheduledPruning, Superseded
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(100_000, 0, Fours())
WRITES = 4


def write(i: int):
    """Return a write of one file, and its result of 1,000 characters."""
    call = assistant("", tool_call("write_file", path="a.py", content=f"{i}" * 50), id=f"a{i}")
    return call, result("r" * 1000, of=call, id=f"r{i}")


def make_talk():
    return [user("go"), *(m for i in range(WRITES) for m in write(i)), assistant("done")]


def list_emptied(messages) -> tuple[list[bool], list[bool]]:
    """Return of each write whether its arguments, and its result, are emptied."""
    notes = [
        m.tool_calls[0].arguments == {"_note": "[superseded — later write_file for same path]"}
        for m in messages
        if m.tool_calls
    ]
    return notes, [
        m.text == "[omitted — superseded by later write_file]" for m in messages if m.role == "tool"
    ]


def test_a_call_and_its_result_are_emptied_together_from_the_threshold_on():
    # Before call n there are n writes; all but the newest are superseded: n - 1 thousand characters.
    log = MessageLog.of(make_talk(), Fours())
    pruning = Superseded(min_chars=2000)
    schedule = Schedule(History.start(log), (pruning,), ROOM).extend(log.calls)
    emptied = [list_emptied(schedule.prompt_at(call).messages) for call in range(log.calls)]
    assert emptied == [
        ([], []),
        ([False], [False]),
        ([False, False], [False, False]),  # 1,000 characters are too few
        ([True, True, False], [True, True, False]),  # 2,000: the first write, too
        ([True, True, True, False], [True, True, True, False]),
    ]


def test_all_are_given_back_when_less_is_superseded():
    whole = shown(*make_talk())
    below = shown(*make_talk()[:5])
    pruning = Superseded(min_chars=2000)
    assert list_emptied(pruning(whole, ROOM).messages)[1] == [True, True, True, False]
    assert pruning(below, ROOM) is below


class HideThirdWrite(ScheduledPruning):
    """Hide the third write of the talk below with its result, once something follows them."""

    def schedule(self, view, _budget):
        for call in view.calls():
            if view.count_arrived(call) >= 7 and not view.memory.get("done"):
                view.memory["done"] = True
                for p in (4, 5):
                    view.change(p, None, since=call)


def test_a_call_whose_only_result_vanishes_supersedes_nothing():
    """The second write got no result; the third has its id, so that its result answers both."""
    asked_again = [assistant("", tool_call("write_file", "x", path="a.py")) for _ in range(2)]
    talk = [user("go"), *write(0), *asked_again, result("r" * 1000, "x", "write_file")]
    talk += [assistant("done"), user("more"), assistant("end")]
    parts = (HideThirdWrite(), Superseded(min_chars=0))
    log = MessageLog.of(talk, Fours())
    schedule = Schedule(History.start(log), parts, ROOM).extend(log.calls)
    emptied = [list_emptied(schedule.prompt_at(call).messages)[1] for call in range(log.calls)]
    assert [results[:1] for results in emptied] == [[], [False], [False], [True], [False]]
