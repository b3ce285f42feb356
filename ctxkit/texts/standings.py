"""Where a team's state machine stands, as a turn's prompt keeps it, and as a summary says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.texts import contents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ctxkit.messages import Message

STANDING = "standing"
"""In the details of a turn's prompt: state, states entered, signals, contracts, failures."""
_MOST = 40
_CHARS = 200


def newest(messages: Iterable[Message]) -> Mapping[str, Any]:
    """Return what is kept of the standing by the newest message that keeps any; else nothing.

    Args:
        messages: of one agent, newest first.
    """
    found = (m.details[STANDING] for m in messages if STANDING in m.details)
    known = next(found, None)
    return known if isinstance(known, dict) else {}


def blocks(standing: Mapping[str, Any]) -> list[str]:
    """Return fuseraft's sections of a standing: STATE MACHINE POSITION and CONTRACT STATUS (what
    holds first); none where there is no state.

    Both are as of the beginning of the turn under way: the machine looks at a turn's end.
    """
    state = _line(standing.get("state"))
    if not state:
        return []
    rows = [f"  State: {state} (agent: {_line(standing.get('agent')) or 'unknown'})"]
    for name, key in (("Entered so far", "entered"), ("Signals out of it", "signals")):
        known = [_line(x) for x in _list(standing.get(key))]
        rows += [f"  {name}: {', '.join(known)}"] if known else []
    rows += [f"  Failed {_line(x)}" for x in _list(standing.get("failures"))]
    contracts = [c for c in _list(standing.get("contracts")) if isinstance(c, dict)]
    held = [f"  ✓ {_line(c.get('name'))}" for c in contracts if not c.get("why")]
    open_ = [f"  ✗ {_line(c.get('name'))}\n    Reason: {_line(c.get('why'))}"
             for c in contracts if c.get("why")]  # fmt: skip
    out = ["\n".join(["STATE MACHINE POSITION (as this turn began)", *rows])]
    return [*out, "\n".join(["CONTRACT STATUS", *held, *open_])] if contracts else out


def _list(value: Any) -> list[Any]:
    return list(value)[:_MOST] if isinstance(value, (list, tuple)) else []


def _line(value: Any) -> str:
    return contents.one_line(str(value), _CHARS) if value is not None else ""
