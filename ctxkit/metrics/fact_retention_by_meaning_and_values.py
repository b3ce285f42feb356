"""Retention of facts by meaning: sentence similarity, and the exact values of each fact."""

# A summary rewrites, so a fact can survive in other words, and a similar sentence can state another
# number. Each fact is therefore checked twice:
#   meaning  is the nearest sentence of the text within a threshold of similarity?
#   values   does the text contain all numbers, dates, paths and identifiers of the fact?
# Similarity does not detect a contradiction: "Monday at 09:00" is near "Friday at 14:00", and "may
# be changed freely" is near "must never be changed". So it is never reported without the values.

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.losable_items import (
    extract_exact_values,
    extract_items,
    find_missing_values,
)
from ctxkit.metrics.sentence_similarity import SimilarityMeasure, get_similarity_measure
from ctxkit.session.compactions_and_prunings import group_edits
from ctxkit.session.messages import Message
from ctxkit.session.session import Session, apply_edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd


__all__ = [
    "FactRetention",
    "check_facts",
    "meaning",
    "split_sentences_and_lines",
]
__dir__ = make_dunder_dir(__all__)


MAX_SENTENCES = 2000
"""Maximum number of sentences that are compared, from the end of the text."""
_SENTENCE_FAMILIES = ("constraint", "decision", "open")
"""Families of items that are sentences, so that other words can state them."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`(\"'])|\n+")
MEANING_COLUMNS = {
    "session": "string",
    "compaction": "Int64",
    "call": "Int64",
    "family": "string",
    "fact": "string",
    "similarity": "Float64",
    "meaning_kept": "boolean",
    "values_n": "Int64",
    "values_kept": "boolean",
    "missing": "string",
    "measure": "string",
}


class FactRetention(NamedTuple):
    """The retention of one fact in a text."""

    fact: str
    nearest: float
    """Similarity of the nearest sentence, 0..1."""
    meaning: bool
    """True where the similarity reaches the threshold of the measure."""
    exact_values: tuple[str, ...]
    """The numbers, dates, paths and identifiers of the fact."""
    missing: tuple[str, ...]
    """The exact values that the text does not contain."""


def check_facts(
    facts: Sequence[str], text: str, measure: str | SimilarityMeasure | None = None
) -> tuple[FactRetention, ...]:
    """Check for each fact whether a text still states it, by meaning and by exact values.

    Args:
        facts: sentences.
        text: a summary, or a whole prompt.
        measure: `minilm` (needs the extra `semantic`), `stems`, or a measure of your own; None:
            `minilm` where it is installed, else `stems`.

    Returns:
        One result per fact, in order.

    Raises:
        BadArguments: there is no such measure, or its extra is not installed.

    Example:
        >>> [check] = check_facts(["The port is 8080."], "The port is 9090.", "stems")
        >>> check.meaning, check.missing
        (True, ('8080',))
    """
    similarity_measure = get_similarity_measure(measure)
    similarities = similarity_measure(list(facts), split_sentences_and_lines(text)[-MAX_SENTENCES:])
    folded_text = " ".join(text.split()).casefold()
    checks = []
    for fact, similarity in zip(facts, similarities, strict=True):
        values = extract_exact_values(fact)
        checks.append(
            FactRetention(
                fact,
                similarity,
                similarity >= similarity_measure.threshold,
                values,
                find_missing_values(values, folded_text),
            )
        )
    return tuple(checks)


@accepts_session
def meaning(
    session: Session,
    facts: Sequence[str] | None = None,
    measure: str | SimilarityMeasure | None = None,
) -> pd.DataFrame:
    """Check after each compaction which facts the prompt still states, by meaning and by values.

    The searched text is what user, agent and summaries state in the prompt after the compaction.

    Args:
        session: a session or a replay with text; others have no rows.
        facts: sentences to check after every compaction that follows a message with one of their
            values; None: the user's constraints, the agent's decisions and the open points of all
            messages that compactions have removed so far.
        measure: see `check_facts`.

    Returns:
        One row per compaction and fact, with the columns `session compaction call family fact`;
        `similarity` of the nearest sentence; `meaning_kept`, whether it reaches the threshold;
        `values_n`, `values_kept` (missing where the fact has no values) and the `missing` values;
        `measure`.

    Raises:
        BadArguments: there is no such measure, or its extra is not installed.

    Example:
        >>> import ctxkit as ck
        >>> table = ck.metrics.meaning(ck.samples.path("billing"), measure="stems")
        >>> table["family"].unique().tolist()
        ['constraint']
    """
    import pandas as pd

    similarity_measure = get_similarity_measure(measure)
    rows = list(_iter_meaning_rows(session, facts, similarity_measure)) if session.has_text else []
    return pd.DataFrame(rows, columns=list(MEANING_COLUMNS)).astype(MEANING_COLUMNS)


def _iter_meaning_rows(
    session: Session, facts: Sequence[str] | None, measure: SimilarityMeasure
) -> Iterator[tuple[Any, ...]]:
    removed: dict[str, str] = {}
    visible: list[Message] = []
    start, mentioned = 0, set[str]()
    reply_positions = [c.position for c in session.calls]
    for group in group_edits(session):
        new = [
            e for e in session.path[start : group.position] if isinstance(e, Message) and e.visible
        ]
        visible += new
        before, start = visible, group.position + len(group.edits)
        for edit in group.edits:
            visible = apply_edit(visible, edit)
        visible_ids = {id(m) for m in visible}
        removed |= {
            f.text: f.family
            for f in _iter_sentence_items(m for m in before if id(m) not in visible_ids)
        }
        family_of_fact = removed
        if facts is not None:
            new_text = " ".join(" ".join(m.text for m in new).split()).casefold()
            mentioned |= {f for f in facts if f not in mentioned and _mentions_fact(f, new_text)}
            family_of_fact = {f: "given" for f in facts if f in mentioned}
        text = "\n".join(m.text for m in visible if m.role != "tool")
        call = sum(position < group.position for position in reply_positions)
        for check in check_facts(list(family_of_fact), text, measure):
            has_all_values = not check.missing if check.exact_values else None
            figures = (
                check.nearest,
                check.meaning,
                len(check.exact_values),
                has_all_values,
                ", ".join(check.missing),
                measure.name,
            )
            yield (session.id, group.number, call, family_of_fact[check.fact], check.fact, *figures)


def _mentions_fact(fact: str, folded_text: str) -> bool:
    """Return True if a text contains a value of a fact, or the fact has no values."""
    values = extract_exact_values(fact)
    return not values or len(find_missing_values(values, folded_text)) < len(values)


def _iter_sentence_items(messages: Iterable[Message]) -> Iterator[Any]:
    for message in messages:
        if message.role in ("user", "assistant"):
            yield from sorted(f for f in extract_items(message) if f.family in _SENTENCE_FAMILIES)


def split_sentences_and_lines(text: str) -> list[str]:
    """Return the sentences and lines of a text that have more than two characters."""
    return [s for part in _SENTENCE_END.split(text) if len(s := " ".join(part.split())[:600]) > 2]
