"""Sixty thousand tokens outside the log: nine servers' tool schemas are sent with every call of an office assistant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.course.generator.session_recorder import ModelProfile, SessionRecorder
from sample.prose import letter

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

LARGE = ModelProfile(context_window=200_000, compaction_threshold=165_000, keep_recent=20_000)
TITLE = "Inbox and calendar of a week"
STARTED = 1773651600.0  # Monday 16 March 2026, 09:00 UTC
FIXED = 60_000
"""Tokens of tool schemas: every call sends them, no message of the log holds them."""
SYSTEM = (
    "You look after the inbox and the calendar of one person. Read before you answer. Never send a letter or accept "
    "a meeting without being told to. Dates are written as 2026-03-16."
)
NAMES = ("amira", "bruno", "chen", "dora", "emil", "fatou", "goran", "hanna", "igor", "june")


def play(rng: Random, count: Callable[[str], int]) -> SessionRecorder:
    """Return the recorder of one week."""
    recorder = SessionRecorder(
        SYSTEM,
        rng=rng,
        count_tokens=count,
        write_summary=lambda _: "",
        schema_tokens=FIXED,
        start=STARTED,
        profile=LARGE,
    )
    open_: list[tuple[str, str]] = []
    for day in range(5):
        recorder.add_user_message(
            f"Good morning. What came in, and what has to be answered on 2026-03-{16 + day}? Leave Friday afternoon free.",
            30.0 if not day else 60_000.0,
        )
        names = rng.sample(NAMES, 5)
        listed = "\n".join(f"MSG-{rng.randrange(10_000, 99_999)} {n}@example.org" for n in names)
        recorder.add_tool_calls(("mail_list", {"since": f"2026-03-{15 + day}"}, listed, False))
        for line in listed.splitlines():
            number, sender = line.split()
            wanted = f"Please confirm booking BK-{rng.randrange(1000, 9999)} for room {rng.choice('ABCD')}-{rng.randrange(100, 400)}."
            recorder.add_tool_calls(
                ("mail_read", {"id": number}, letter(rng, sender, "the booking", wanted), False)
            )
            open_.append((sender.split("@")[0], wanted.removeprefix("Please confirm booking ")))
        events = "\n".join(
            f"2026-03-{16 + day} {9 + i}:00 {rng.choice(NAMES)} {rng.choice(NAMES)}"
            for i in range(6)
        )
        recorder.add_tool_calls(("calendar_list", {"day": f"2026-03-{16 + day}"}, events, False))
        recorder.add_answer(" ".join(f"{name} wants {what}" for name, what in open_[-5:]))
        for name, what in rng.sample(open_, 4):
            recorder.add_user_message(
                f"Draft an answer to {name}. Which booking was that?",
                rng.choice((45.0, 150.0, 900.0)),
            )
            booking = what.split()[0]
            done = (
                "mail_draft",
                {"to": f"{name}@example.org", "about": booking},
                f"draft saved for {booking}",
                False,
            )
            recorder.add_tool_calls(done, thinking=f"The booking of {name} was {booking}.")
            recorder.add_answer(f"The draft confirms {what} It waits for your word.")
    return recorder
