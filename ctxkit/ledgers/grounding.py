"""An agent's claims held against the change log: what it says that it did, and what it did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.ledgers.acts import changes_of
from ctxkit.messages import Text
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ctxkit.ledgers.kinds import ChangeLog, CommandRun
    from ctxkit.session import Session

_FILE = (
    r"[`'\"*]{0,3}((?:[\w.@-]{1,100}/){0,12}[\w@-][\w.@-]{0,100}\.[A-Za-z][A-Za-z0-9]{0,4})(?!\w)"
)
_WROTE = re.compile(
    r"(?<!\w)(?:wrote|created|added|updated|changed|modified|patched|edited|fixed|rewrote)"
    rf"(?: (?:a|an|the|new|file|files|it in|in|to))*[ :]+{_FILE}", re.IGNORECASE)  # fmt: skip
_DELETED = re.compile(
    rf"(?<!\w)(?:deleted|removed)(?: (?:the|file|old))*[ :]+{_FILE}", re.IGNORECASE
)
_MORE = re.compile(rf"[`'\"*]{{0,3}}(?:,? and|,) {_FILE}", re.IGNORECASE)
"""What goes on with a list of files."""
_RAN = re.compile(r"(?<!\w)(?:ran|executed) `([^`\n]{2,200})`", re.IGNORECASE)
_PASSED = re.compile(
    r"(?<!\w)(?:(?:all )?(?:the )?(?:\d+ )?tests? (?:now )?(?:pass|passed|are green|succeed)|"
    r"test suite (?:passes|passed|is green))(?!\w)", re.IGNORECASE)  # fmt: skip
_NOT = re.compile(
    r"(?<!\w)(?:not|never|no|n't|if|once|until|should|will|would|to)\s+(?:\w+\s+){0,2}$"
)
_TEST = re.compile(r"test|tox|jest|check", re.IGNORECASE)
_LONGEST = 200_000
COLUMNS = ["turn", "message", "kind", "claim", "target", "grounded", "why"]


class Claim(NamedTuple):
    """Something that an agent says it did."""

    kind: str
    """`wrote`, `deleted`, `ran` or `passed`."""
    words: str
    target: str


@of_session
def grounding(session: Session, changes: ChangeLog | None = None) -> pd.DataFrame:
    """Return one row a claim of an agent: whether the change log holds it by then.

    Claims are found by their words ("I created a.py", "ran `pytest`", "all tests pass"), so this
    finds some and not all; a claim that nothing proves need not be untrue, and the column `why`
    says what was looked for. What is denied, wished for or to come is no claim.

    Args:
        session: any session, the path of a log, or a list of messages.
        changes: what it is held against, as `ledger` read it; None: made from the session's record.
    """
    import pandas as pd

    log, rows = changes or changes_of(session), []
    for call in session.calls:
        text = "\n".join(p.text[:_LONGEST] for p in call.message.parts if isinstance(p, Text))
        for claim in claims(text):
            held, why = _held(claim, log, call.turn)
            rows.append(
                (call.turn, call.message.id, claim.kind, claim.words, claim.target, held, why)
            )
    made = pd.DataFrame(rows, columns=COLUMNS)
    return made.astype({"turn": "Int64", "grounded": "boolean"})


def claims(text: str) -> Iterator[Claim]:
    """Yield what a text says was done."""
    for kind, found in (
        ("wrote", _WROTE),
        ("deleted", _DELETED),
        ("ran", _RAN),
        ("passed", _PASSED),
    ):
        for hit in found.finditer(text):
            if not _NOT.search(text[max(hit.start() - 40, 0) : hit.start()].lower()):
                target = hit[1].rstrip(".") if hit.re.groups else ""
                words = " ".join(hit[0].split())[:200]
                yield Claim(kind, words, target)
                more = _MORE.match(text, hit.end()) if kind in ("wrote", "deleted") else None
                while more is not None:
                    yield Claim(kind, words, more[1].rstrip("."))
                    more = _MORE.match(text, more.end())


def _held(claim: Claim, log: ChangeLog, turn: int) -> tuple[bool, str]:
    """Return whether the log holds a claim up to a turn, and why."""
    past = [e for e in log.entries if e.turn_index <= turn]
    runs = [c for e in past for c in e.commands_run]
    if claim.kind in ("wrote", "deleted"):
        written = claim.kind == "wrote"
        paths = {p for e in past for p in (e.files_written if written else e.files_deleted)}
        if any(_same(claim.target, p) for p in paths):
            return True, "the change log has the file"
        named = any(c.succeeded and claim.target in c.command for c in runs)
        return named, "a command names it" if named else "no change of that file, no command"
    if claim.kind == "ran":
        known = [c.command for c in runs if c.command]  # a call may name none
        same = [c for c in known if claim.target in c or c in claim.target]
        return (True, "the command was run") if same else (False, "no such command")
    return _passed(runs)


def _passed(runs: list[CommandRun]) -> tuple[bool, str]:
    tests = [c for c in runs if _TEST.search(c.command)]
    if not tests:
        return False, "no command that tests"
    good = tests[-1].succeeded
    return good, f"the last test command {'succeeded' if good else 'failed'}"


def _same(claimed: str, path: str) -> bool:
    """Say whether a name means a path: it is one, or the end of it."""
    one, other = claimed.removeprefix("./"), path.removeprefix("./")
    return one == other or other.endswith(f"/{one}") or one.endswith(f"/{other}")
