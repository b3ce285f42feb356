"""What is at the end of a call is counted as any other message, however its text grew."""

from builders import assistant, system, user

from ctxkit.policies import History, MessageLog, Schedule
from ctxkit.policies.schedules import TextsByPosition
from ctxkit.session import Message, Text
from ctxkit.tokens import ContextBudget, default_counter

TEXTS = ["a list\n- one", "a list\n- one\n- two 22", "a list\n- one\n- two 2222 ", "another\n", ""]


class Listing:
    """Appends another text at each call."""

    counts = False

    def schedule(self, view, _budget):
        for call in view.calls():
            text = TEXTS[call % len(TEXTS)]
            view.append(Message(role="user", parts=(Text(text),)), call)


def test_a_text_that_grows_is_counted_as_it_stands():
    rows = [system("s"), *(m for n in range(10) for m in (user(f"u{n}"), assistant(f"a{n}")))]
    log = MessageLog.of(rows, default_counter())
    schedule = Schedule(History.start(log), (Listing(),), ContextBudget(1000, 0, log.counter))
    for call in range(log.calls):
        schedule.extend(call + 1)
        added = schedule.top.get_appended(call)
        assert (
            added.tokens
            == log.measure(added.message)
            == default_counter()(TEXTS[call % len(TEXTS)])
        )


def test_a_look_at_a_roll_stays_as_it_was():
    roll, looks = TextsByPosition(), []
    for p, text in ((3, "c"), (1, "a"), (7, "g"), (3, "C"), (9, "i")):
        roll.insert(p, text)
        looks.append(roll.take_snapshot())
    roll.remove(9)
    roll.remove(4)
    roll.insert(8, "h")
    looks.append(roll.take_snapshot())
    said = ["".join(texts[:n]) for texts, n in looks]
    assert said == ["c", "ac", "acg", "aCg", "aCgi", "aCgh"]
