"""Whether what was said is still said in other words: its meaning and its exact values, in two
columns.

A summary rewrites. An item that no longer stands word for word may still be there in other words,
and a sentence that sounds the same may name another number. So a fact is asked for twice: is a
sentence near to it (`metrics.likeness`), and do its numbers, dates, paths and identifiers stand in
the text? Negations are seen by neither.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.frames.recorded_cuts import cuts
from ctxkit.messages import Message
from ctxkit.metrics.items import items
from ctxkit.metrics.likeness import Likeness, named
from ctxkit.readers.given import of_session
from ctxkit.session import Session, apply_edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd

__all__ = ["KeptFact", "kept", "meaning", "sentences", "values"]

SENTENCES = 2000
"""Sentences of what is shown that are compared, the newest."""
_FAMILIES = ("constraint", "decision", "open")
"""Items that are sentences: what may be said in other words."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`(\"'])|\n+")
_VALUE = re.compile(
    r"(?<![\w./:-])(?:[\w.@~+-]*/[\w./@+-]+|[\w.:#@+-]*\d[\w.:%@+-]*"  # paths; whatever has a digit
    # names as programs spell them
    r"|[A-Z]\w*(?:-[A-Z]\w*)+|\w+_\w+|[A-Za-z]*[a-z][A-Z]\w*|[A-Za-z]\w+\.[a-z_]\w+)"
)
COLUMNS = {
    "session": "string",
    "cut": "Int64",
    "call": "Int64",
    "family": "string",
    "fact": "string",
    "nearest": "Float64",
    "meaning_kept": "boolean",
    "values_n": "Int64",
    "values_kept": "boolean",
    "missing": "string",
    "measure": "string",
}


class KeptFact(NamedTuple):
    """What became of one fact."""

    fact: str
    nearest: float
    """How near the nearest sentence is, 0..1."""
    meaning: bool
    """Whether that is near enough for the measure."""
    told: tuple[str, ...]
    """Its numbers, dates, paths and identifiers."""
    missing: tuple[str, ...]
    """Those of them that do not stand in the text."""


def kept(
    facts: Sequence[str], text: str, measure: str | Likeness | None = None
) -> tuple[KeptFact, ...]:
    """Return for each fact whether a text still says it, by meaning and by exact values.

    Args:
        facts: sentences.
        text: a summary, or all that is shown.
        measure: `minilm` (needs the extra `semantic`), `stems`, or your own; None: `minilm` where
            it is installed.

    Raises:
        BadArguments: there is no such measure, or its extra is not installed.
    """
    likeness = named(measure)
    near = likeness(list(facts), sentences(text)[-SENTENCES:])
    plain = " ".join(text.split()).casefold()
    out = []
    for fact, value in zip(facts, near, strict=True):
        told = values(fact)
        out.append(KeptFact(fact, value, value >= likeness.threshold, told, missing(told, plain)))
    return tuple(out)


@of_session
def meaning(
    session: Session, facts: Sequence[str] | None = None, measure: str | Likeness | None = None
) -> pd.DataFrame:
    """Return one row for each compaction and each fact that it might have lost.

    Columns: `session cut call family fact nearest meaning_kept values_n values_kept missing
    measure`. The text is what the user and the agent said, and what compactions put in, as far as
    it is shown after the cut. `values_kept` is missing where the fact has none.

    Args:
        session: a session or a replay with text; others have no rows.
        facts: sentences to be asked for after every compaction, once any of their values was said;
            None: the user's constraints, the agent's decisions and what was left open, in what the
            compactions have removed so far.
        measure: see `kept`.

    Raises:
        BadArguments: there is no such measure, or its extra is not installed.
    """
    import pandas as pd

    likeness = named(measure)
    rows = list(_rows(session, facts, likeness)) if session.has_text else []
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _rows(
    session: Session, facts: Sequence[str] | None, likeness: Likeness
) -> Iterator[tuple[Any, ...]]:
    gone: dict[str, str] = {}
    shown: list[Message] = []
    at, begun = 0, set[str]()
    calls = [c.position for c in session.calls]
    for cut in cuts(session):
        new = [e for e in session.path[at : cut.position] if isinstance(e, Message) and e.visible]
        shown += new
        before, at = shown, cut.position + len(cut.edits)
        for edit in cut.edits:
            shown = apply_edit(shown, edit)
        there = {id(m) for m in shown}
        gone |= {f.text: f.family for f in _said(m for m in before if id(m) not in there)}
        asked = gone
        if facts is not None:
            heard = " ".join(" ".join(m.text for m in new).split()).casefold()
            begun |= {f for f in facts if f not in begun and _is_said(f, heard)}
            asked = {f: "given" for f in facts if f in begun}
        text = "\n".join(m.text for m in shown if m.role != "tool")
        call = sum(position < cut.position for position in calls)
        for k in kept(list(asked), text, likeness):
            exact = None if not k.told else not k.missing
            told = (k.nearest, k.meaning, len(k.told), exact, ", ".join(k.missing), likeness.name)
            yield (session.id, cut.number, call, asked[k.fact], k.fact, *told)


def _is_said(fact: str, heard: str) -> bool:
    """Say whether a text holds a value of a fact, where it has any."""
    told = values(fact)
    return not told or len(missing(told, heard)) < len(told)


def _said(messages: Iterable[Message]) -> Iterator[Any]:
    for message in messages:
        if message.role in ("user", "assistant"):
            yield from sorted(f for f in items(message) if f.family in _FAMILIES)


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text that say something."""
    return [s for part in _SENTENCE.split(text) if len(s := " ".join(part.split())[:600]) > 2]


def missing(told: Iterable[str], text: str) -> tuple[str, ...]:
    """Return those of some values that do not stand in a text, which is given in lower case."""
    return tuple(v for v in told if not _stands(v.casefold(), text))


def _stands(value: str, text: str) -> bool:
    at = text.find(value)
    while at >= 0 and not is_whole(text, at, at + len(value)):
        at = text.find(value, at + 1)
    return at >= 0


def is_whole(text: str, start: int, end: int) -> bool:
    """Say whether a value that stands at a place of a text is no part of a longer one there."""
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    if before == "." or _in_word(before) or _in_word(after):
        return False
    return not (after and after in ".,:" and text[end + 1 : end + 2].isdecimal())


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def values(fact: str) -> tuple[str, ...]:
    """Return the numbers, dates, paths and identifiers of a sentence, each once."""
    return tuple(
        dict.fromkeys(v for hit in _VALUE.findall(fact) if len(v := hit.rstrip(".,:;")) > 0)
    )
