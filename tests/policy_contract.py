"""What every policy keeps to, and histories to hold it against: arbitrary ones, and those of real sessions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from builders import assistant, result, system, tool_call, user
from histories import shown
from hypothesis import strategies as st

from ctxkit.errors import ModelError
from ctxkit.session import apply_edit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit.policies import History
    from ctxkit.session import Message
    from ctxkit.tokens import ContextBudget

TOOLS = ["read_file", "write_file", "bash", "grep", "deploy"]
WORDS = "fix src/a.py, run it "


@st.composite
def messages(draw: Callable) -> list[Message]:
    """Messages of a session: turns of words, calls in parallel, late and missing results, pinned and pending ones."""
    out: list[Message] = [system()] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 6))):
        out.append(user(_words(draw), pinned=draw(st.integers(0, 9)) == 0))
        for _ in range(draw(st.integers(0, 4))):
            out += _step(draw)
    return out


def _step(draw: Callable) -> list[Message]:
    calls = [
        tool_call(draw(st.sampled_from(TOOLS)), path=draw(st.sampled_from("ab")))
        for _ in range(draw(st.integers(0, 3)))
    ]
    said = assistant(
        _words(draw),
        *calls,
        thinking=draw(st.sampled_from(["", "hm " * 80])),
        agent=draw(st.sampled_from([None, "Dev", "Tester"])),
    )
    rows = [
        result(
            _words(draw) * draw(st.sampled_from([1, 8])),
            c,
            is_error=draw(st.integers(0, 5)) == 0,
            pending=draw(st.integers(0, 19)) == 0,
        )
        for c in calls
    ]
    if rows and draw(st.integers(0, 9)) == 0:
        rows.insert(draw(st.integers(0, len(rows))), user("wait"))
    if rows and draw(st.integers(0, 9)) == 0:
        rows.pop()
    return [said, *rows]


def _words(draw: Callable) -> str:
    return WORDS * draw(st.sampled_from([0, 1, 3, 12]))


def holds(policy: Callable, history: History, room: ContextBudget, rounds: int = 1) -> None:
    """Assert the whole contract on one policy and one history; after so many rounds it does nothing more."""
    before = history.messages
    try:
        new = policy(history, room)
    except ModelError:  # nothing that could be summarised: said aloud, and the history is as it was
        assert history.messages == before
        return
    after = new.messages
    assert history.messages == before, "it changed what it was given"
    assert policy(history, room).messages == after, "the same history gave another result"
    assert new.tokens <= history.tokens, "tokens grew"
    paired(before, after)
    kept = {m.id for m in after}
    assert {m.id for m in before if m.pinned or m.pending or m.role == "system"} <= kept, (
        "what must stay is gone"
    )
    view = list(before)
    for edit in new.edits:
        view = apply_edit(view, edit)
    assert [(m.id, m.parts) for m in view] == [(m.id, m.parts) for m in after], (
        "its edits say something else"
    )
    with suppress(ModelError):  # a later round may leave nothing that could be summarised
        for _ in range(rounds - 1):
            new = policy(new, room)
        assert policy(new, room).tokens == new.tokens, "it does not settle"


def paired(
    before: tuple[Message, ...], after: tuple[Message, ...], late: set[str] = frozenset()
) -> None:
    """Assert that no call lost the result it had, and no result its call.

    `late`: calls without an answer when they were dropped; what they returned later is alone.
    """
    asked = {c.id: i for i, m in enumerate(after) for c in m.tool_calls}
    answered = {m.call_id: i for i, m in enumerate(after) if m.role == "tool"}
    calls = {c.id for m in before for c in m.tool_calls} - late
    results = {m.call_id for m in before if m.role == "tool"}
    assert not {c for c in asked if c in results} - answered.keys(), "a call lost its result"
    assert not {c for c in answered if c in calls} - asked.keys(), "a result lost its call"
    assert all(asked[c] < answered[c] for c in asked.keys() & answered.keys()), (
        "a result stands before its call"
    )


def history_of(rows: list[Message]) -> History:
    """A history of messages, its call about to be sent long after the last."""
    return shown(rows, time=1e9)


def kinds(base: type, *rooms: str) -> set[type]:
    """All classes of these rooms that derive from a base: what a contract list must hold."""
    for room in rooms:
        package = import_module(f"ctxkit.{room}")
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(found.name)
    below, todo = set(), [base]
    while todo:
        below |= {*(new := todo.pop().__subclasses__())}
        todo += new
    own = tuple(f"ctxkit.{room}." for room in rooms)
    return {kind for kind in below if kind.__module__.startswith(own)}


def made_of(value: Any) -> Iterator[type]:
    """The types of a value and of all that it is made of, settings and parts alike."""
    yield type(value)
    if isinstance(value, (list, tuple)):
        inner = value
    else:
        inner = [getattr(value, f.name) for f in fields(value)] if is_dataclass(value) else []
    for each in inner:
        yield from made_of(each)
