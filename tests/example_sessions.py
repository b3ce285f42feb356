"""Small sessions, each with what one kind of display or table can show, by public words."""

from __future__ import annotations

from typing import Any

from builders import assistant, result, session, step, summarised, system, usage, user

import ctxkit as ck
from ctxkit.session import Edit, Message, Text

MODEL = "claude-sonnet-4-5"


def make_growing(
    n: int, *, gap: float = 30.0, first: int = 3000, cached: bool = True, **more: Any
) -> ck.Session:
    """Return a session of n priced calls, each 2,000 tokens longer, its prefix read from the
    cache."""
    log, before = [], 0
    for i in range(n):
        now = first + 2000 * i
        log += [
            user(f"Look at src/module{i}.py. " + "word " * 1900, time=gap * i),
            assistant(
                f"Done, as in src/module{max(i - 5, 0)}.py.", usage=usage(3, before, now - before, 100) if cached else usage(now, output=100), model=MODEL, time=gap * i + 5,
            ),
        ]  # fmt: skip
        before = now
    return session(*log, **{"id": "growing", "title": "growing", **more})


def _attempt(outcome: str) -> Message:
    details = {"outcome": outcome, "tokens": 500, "messages": 4}
    return Message(
        role="system", id=outcome, kind="compaction_attempt", visible=False, details=details,
        parts=(Text("no answer from the model"),),
    )  # fmt: skip


def make_compacted(name: str = "compacted", **more: Any) -> ck.Session:
    """Return a session with a good compaction, one whose summary failed, one that failed, and a
    fall without a mark."""
    asked = [user(f"{name} {i} " + "x" * 4000) for i in range(6)]
    sizes = (1000, 600, 500, 510, 2600, 700)
    replies = [
        assistant("a", usage=usage(n), model="gpt-5", time=60.0 * i) for i, n in enumerate(sizes)
    ]
    return session(
        *(asked[0], replies[0]),
        summarised([asked[0]], tokens_before=1000, tokens_after=500, trigger="auto", method="tail"),
        *(asked[1], replies[1]),
        summarised(
            [asked[1]], tokens_before=600, tokens_after=400,
            details={"error": "the model was busy"},
        ),
        *(asked[2], replies[2], _attempt("failed"), _attempt("skipped")),
        *(asked[3], replies[3], asked[4], replies[4], asked[5], replies[5]),
        **{"id": name, "title": name, "context_window": 3000, **more},
    )  # fmt: skip


def make_shrinking(name: str, *sizes: tuple[int, int], **more: Any) -> ck.Session:
    log: list[Any] = [user()]
    for before, after in sizes:
        log += [
            summarised([], tokens_before=before, tokens_after=after, method="tail"),
            assistant(usage=usage(after)),
        ]
    return session(*log, id=name, title=name, **more)


def make_with_tools() -> ck.Session:
    """Return a session with a shortened result, a summary and dropped messages."""
    head, ask, (a, r), last = (
        system("s" * 40), user("u" * 80), step("bash", "y" * 400, command="ls"), user("end"),
    )  # fmt: skip
    b, q = step("read_file", "z" * 800, path="src/a.py")
    short = result("y" * 40, a, id="short")
    reply = assistant("seen", usage=usage(900), time=10.0)
    return session(
        *(head, ask, a, r, b, q, reply),
        Edit(kind="shortened", id="e0", targets=(r.id,), inserted=(short,), reason="old result"),
        Edit(
            kind="summarised", id="e1", targets=(ask.id, a.id, "short"), reason="too long",
            inserted=(Message(role="summary", id="sum", parts=(Text("m" * 120),)),),
        ),
        last,
        assistant("done", usage=usage(400), time=20.0),
        Edit(kind="dropped", id="e2", targets=(b.id, q.id), reason="stale"),
        id="tools", title="tools", context_window=4000,
    )  # fmt: skip


def _turn(agent: str, number: int, tokens: int, **more: Any) -> Message:
    return Message(
        role="assistant", id=f"t{number}", kind="turn", agent=agent, turn=number,
        usage=usage(tokens, output=number + 3), details={"warn_at": 2500, "cutover_at": 4000},
        **more,
    )  # fmt: skip


def make_team() -> ck.Session:
    turns = [_turn(("Dev", "Rev")[n % 2], n, 900 + 350 * n) for n in range(6)]
    return session(*turns[:3], summarised([]), *turns[3:], id="team", title="team")


def make_alternating() -> ck.Session:
    """Return a session of two agents that take turns."""
    replies = [
        assistant(f"reply {n}", agent=("Dev", "Rev")[n % 2], usage=usage(90 + 40 * n))
        for n in range(6)
    ]
    return session(user("Write it, then test it."), *replies, id="pair", title="pair")


def make_with_user_rules() -> ck.Session:
    """Return a session in which a rule of the user goes out of sight and is acted against."""
    old = [user("Never touch src/a.py or src/b.py."), assistant("I see.", usage=usage(200))]
    touch = step("write_file", "ok", path="src/b.py", content="x")
    return session(
        *(*old, summarised(old, "src/a.py", tokens_before=200, tokens_after=40)),
        *(user("go"), assistant("now src/b.py", usage=usage(90)), *touch),
        *(user("Always run the tests."), assistant("yes", usage=usage(120))),
        id="rules", title="rules",
    )  # fmt: skip


def make_with_suppressed_compaction() -> ck.Session:
    held = {"call": 7, "guard": "AntiThrash", "why": "closed"}
    return make_shrinking(
        "held", (100, 95), (100, 97), (100, 101), (80, 20), details={"replay": {"held": [held]}}
    )


def make_pruned_replay() -> ck.Session:
    return ck.replay(
        make_growing(12),
        ck.presets.pi(
            context_window=20_000, reserve_tokens=4000, keep_recent_tokens=4000, summariser="fixed"
        ),
    )
