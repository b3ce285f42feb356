"""Checks of what compactions keep, without a model: audits of each compaction, planted facts,
McNemar's test.

Availability is an upper bound: what no longer stands in the context cannot be answered, what does
may be missed.

Identifiers, sections and the latest request are asked for as OpenClaw's summary audit does; the
structure as yoagent's scorer: task lost, latest request lost, nothing but a marker, orphans, turns
in full detail.
"""

from __future__ import annotations

import random
from math import comb
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.recorded_compactions import group_edits
from ctxkit.policies.texts import summary_prompts
from ctxkit.session.messages import Message, Text, get_plain_text
from ctxkit.session.session import Session, apply_edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd

    from ctxkit.metrics.recorded_compactions import EditGroup
    from ctxkit.session.messages import Edit


__all__ = [
    "PairedTest",
    "PlantedFact",
    "audits",
    "check_facts_in_view",
    "make_facts",
    "mcnemar",
    "plant_facts",
]
__dir__ = public_dir(__all__)


FactFamily = Literal["constraint", "decision", "reference", "superseded"]
_SAID: dict[str, str] = {
    "constraint": "Whatever happens, the port {key} must stay closed.",
    "decision": "We decided to call the release {key}.",
    "reference": "The ticket for this is {key}.",
    "superseded": "The build number is 0000; no, it is {key} now.",
}


class PlantedFact(NamedTuple):
    """One planted fact: what is said, and the word that must still stand somewhere."""

    family: FactFamily
    key: str
    text: str


def make_facts(n: int = 12, seed: int = 0) -> tuple[PlantedFact, ...]:
    """Return facts with words that stand nowhere else, as many of each family as of the others."""
    chance = random.Random(seed)  # noqa: S311  no secret
    families = get_args(FactFamily)
    out = []
    for i in range(n):
        key = f"KX-{chance.randrange(10**7):07d}-{i}"
        out.append(PlantedFact(families[i % 4], key, _SAID[families[i % 4]].format(key=key)))
    return tuple(out)


@accepts_session
def plant_facts(
    session: Session, given: Iterable[PlantedFact], seed: int = 0, *, until: float = 0.5
) -> Session:
    """Return a recorded session in which each fact is said by the user, before a user's message in
    its first part.

    Args:
        session: a recorded session; its usage stays as it was, so the facts count as what they are
            estimated at.
        given: the facts.
        seed: of the places.
        until: share of the session in which they are said.

    Raises:
        BadArguments: the session has no user message there.
    """
    import msgspec

    path = session.path
    places = [
        i
        for i, e in enumerate(path)
        if isinstance(e, Message) and e.role == "user" and i <= max(until * len(path), 1)
    ]
    if not places:
        raise BadArguments(
            f"Session {session.id!r} has no user message in its first part to plant facts before."
        )
    chance = random.Random(seed)  # noqa: S311  no secret
    before: dict[int, list[Message]] = {}
    for n, fact in enumerate(given):
        message = Message(role="user", id=f"planted-{n}", parts=(Text(fact.text),), kind="planted")
        before.setdefault(chance.choice(places), []).append(message)
    log: list[Message | Edit] = []
    for i, entry in enumerate(path):
        log += before.get(i, [])
        log.append(entry)
    return msgspec.structs.replace(session, log=tuple(log), parents=(), leaf=-1)


@accepts_session
def check_facts_in_view(
    session: Session, given: Iterable[PlantedFact], call: int | None = None
) -> dict[PlantedFact, bool]:
    """Return for each fact whether its word stands in what a call was shown, or would be next.

    Where the word is an exact value that a model is asked for, this foretells its answer: 600 of
    600 in a published exam after real compactions (see docs/scores.md).
    """
    text = "\n".join(m.text for m in session.view(call))
    return {fact: fact.key in text for fact in given}


class PairedTest(NamedTuple):
    """Two settings over the same facts, paired: no pooling, no approximation."""

    both: int
    only_one: int
    only_other: int
    neither: int
    p: float
    """Two-sided exact McNemar: how likely a split as uneven as this is if both keep
    equally well.
    """


def mcnemar(one: Sequence[bool], other: Sequence[bool]) -> PairedTest:
    """Return the paired exact test of two lists of outcomes, one pair a fact.

    Raises:
        BadArguments: the lists are not of one length.
    """
    if len(one) != len(other):
        raise BadArguments(f"Outcomes are paired: {len(one)} and {len(other)} do not match.")
    pairs = list(zip(one, other, strict=True))
    b, c = pairs.count((True, False)), pairs.count((False, True))
    n = b + c
    tail = sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n if n else 1.0
    return PairedTest(
        pairs.count((True, True)), b, c, pairs.count((False, False)), min(2 * tail, 1.0)
    )


MAX_MARKER_CHARS = 200
"""A text of fewer characters in place of removed messages is a marker, no summary."""
AUDIT_COLUMNS = {
    "session": "string",
    "cut": "Int64",
    "call": "Int64",
    "identifiers_n": "Int64",
    "identifiers_kept": "Float64",
    "missing": "string",
    "sections_missing": "string",
    "ask_reflected": "boolean",
    "task_lost": "boolean",
    "ask_lost": "boolean",
    "marker_only": "boolean",
    "orphans_n": "Int64",
    "turns_n": "Int64",
}


@accepts_session
def audits(session: Session, sections: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row for each compaction of a session or a replay.

    `identifiers_n` names of the removed messages are asked for (at most 12, of the last ten),
    `identifiers_kept` is the share that stands in what is shown, `missing` names the others.
    `ask_reflected`: the text put in speaks of the latest request (missing where nothing was put
    in). `task_lost`, `ask_lost`: the first, the latest request is no longer shown as it was said.
    `marker_only`: what was put in is shorter than 200 characters. `orphans_n`: tool calls or
    results that the cut parted. `turns_n`: requests that are still shown as they were said.

    Args:
        session: a session with text; others have no rows.
        sections: headings that a summary shall have as lines of their own.
    """
    import pandas as pd

    rows = list(_audit_rows(session, sections)) if session.has_text else []
    return pd.DataFrame(rows, columns=list(AUDIT_COLUMNS)).astype(AUDIT_COLUMNS)


def _audit_rows(session: Session, sections: Sequence[str]) -> Iterator[dict[str, Any]]:
    shown: list[Message] = []
    asks: list[Message] = []
    at = calls = 0
    for cut in group_edits(session):
        for entry in session.path[at : cut.position]:
            if isinstance(entry, Message):
                calls += entry.role == "assistant"
                if entry.visible:
                    shown.append(entry)
                    asks += [entry] if entry.role == "user" else []
        before = shown
        for edit in cut.edits:
            shown = apply_edit(shown, edit)
        at = cut.position + len(cut.edits)
        yield {
            "session": session.id,
            "cut": cut.number,
            "call": calls,
            **_audit_compaction(cut, before, shown, asks, sections),
        }


def _audit_compaction(
    cut: EditGroup,
    before: Sequence[Message],
    shown: Sequence[Message],
    asks: Sequence[Message],
    sections: Sequence[str],
) -> dict[str, Any]:
    there = {id(m) for m in before}
    now = {id(m) for m in shown}
    removed = [m for m in before if id(m) not in now]
    put_in = "\n".join(get_plain_text(m) for m in shown if id(m) not in there)
    everything = "\n".join(map(get_plain_text, shown))
    names = summary_prompts.identifiers_to_audit([get_plain_text(m) for m in removed])
    missing = summary_prompts.lost_identifiers(names, everything)
    rows = {row.strip() for row in put_in.splitlines()}
    return {
        "identifiers_n": len(names),
        "identifiers_kept": 1 - len(missing) / len(names) if names else None,
        "missing": ", ".join(missing),
        "sections_missing": ", ".join(s for s in sections if s not in rows),
        "ask_reflected": summary_prompts.reflects_request(get_plain_text(asks[-1]), put_in)
        if asks and put_in
        else None,
        "task_lost": id(asks[0]) not in now if asks else None,
        "ask_lost": id(asks[-1]) not in now if asks else None,
        "marker_only": 0 < len(put_in) < MAX_MARKER_CHARS
        and any(e.kind == "summarised" for e in cut.edits),
        "orphans_n": len(_orphaned_ids(shown) - _orphaned_ids(before)),
        "turns_n": sum(id(m) in now for m in asks),
    }


def _orphaned_ids(shown: Sequence[Message]) -> set[str]:
    """Return the ids of calls and results that lack their partner; calls of the last reply may
    still be open.
    """
    last = next((m for m in reversed(shown) if m.role == "assistant"), None)
    asked = {c.id for m in shown for c in m.tool_calls}
    answered = {m.call_id for m in shown if m.role == "tool" and m.call_id}
    due = {c.id for m in shown if m is not last for c in m.tool_calls}
    return (answered - asked) | (due - answered)
