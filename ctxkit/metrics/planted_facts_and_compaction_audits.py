"""Planted facts and audits: checks of prompts after compactions, without a model."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ctxkit._internal.formatting_and_sanitizing import quote_line
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.policies.texts import summary_prompts_and_audits
from ctxkit.session.compactions_and_prunings import group_edits
from ctxkit.session.messages import Message, Text, get_plain_text
from ctxkit.session.session import Session, apply_edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd

    from ctxkit.session.compactions_and_prunings import CompactionEdits
    from ctxkit.session.messages import Edit


__all__ = [
    "PlantedFact",
    "audits",
    "check_facts_in_prompt",
    "make_facts",
    "plant_facts",
]
__dir__ = make_dunder_dir(__all__)


FactFamily = Literal["constraint", "decision", "reference", "superseded"]
_SENTENCES: dict[str, str] = {
    "constraint": "Whatever happens, the port {key} must stay closed.",
    "decision": "We decided to call the release {key}.",
    "reference": "The ticket for this is {key}.",
    "superseded": "The build number is 0000; no, it is {key} now.",
}


class PlantedFact(NamedTuple):
    """A sentence with a unique word that must remain in the prompt."""

    family: FactFamily
    key: str
    text: str


def make_facts(n: int = 12, seed: int = 0) -> tuple[PlantedFact, ...]:
    """Make facts with unique words, the same number of each family.

    Args:
        n: number of facts.
        seed: seed of the words.

    Returns:
        Facts of the families in turn; the same seed gives the same facts.

    Example:
        >>> [fact.family for fact in make_facts(4)]
        ['constraint', 'decision', 'reference', 'superseded']
    """
    rng = random.Random(seed)  # noqa: S311  no secret
    families = get_args(FactFamily)
    out = []
    for i in range(n):
        key = f"KX-{rng.randrange(10**7):07d}-{i}"
        out.append(PlantedFact(families[i % 4], key, _SENTENCES[families[i % 4]].format(key=key)))
    return tuple(out)


@accepts_session
def plant_facts(
    session: Session, facts: Iterable[PlantedFact], seed: int = 0, *, latest_share: float = 0.5
) -> Session:
    """Return a copy of a session in which the user states each fact, early in the session.

    Each fact is a message of its own before a random user message.

    Args:
        session: a recorded session; its usage is unchanged, so facts count at their estimated size.
        facts: the facts.
        seed: seed of the positions.
        latest_share: share of the session, from its start, in which the facts are stated.

    Returns:
        The copy; the session that was given stays as it is.

    Raises:
        BadArguments: that part of the session has no user message.

    Example:
        >>> import ctxkit as ck
        >>> planted = plant_facts(ck.samples.path("billing"), make_facts(2))
        >>> sum(m.kind == "planted" for m in planted.messages)
        2
    """
    import msgspec

    path = session.path
    positions = [
        i
        for i, e in enumerate(path)
        if isinstance(e, Message) and e.role == "user" and i <= max(latest_share * len(path), 1)
    ]
    if not positions:
        raise BadArguments(
            f"Session {quote_line(session.id)} has no user message in its first part to"
            " plant facts before."
        )
    rng = random.Random(seed)  # noqa: S311  no secret
    planted_before: dict[int, list[Message]] = {}
    for n, fact in enumerate(facts):
        message = Message(role="user", id=f"planted-{n}", parts=(Text(fact.text),), kind="planted")
        planted_before.setdefault(rng.choice(positions), []).append(message)
    log: list[Message | Edit] = []
    for i, entry in enumerate(path):
        log += planted_before.get(i, [])
        log.append(entry)
    return msgspec.structs.replace(session, log=tuple(log), parents=(), leaf=-1)


# Availability is an upper bound of right answers: a model cannot answer what is not in the prompt,
# and can miss what is.
@accepts_session
def check_facts_in_prompt(
    session: Session, facts: Iterable[PlantedFact], call: int | None = None
) -> dict[PlantedFact, bool]:
    """Return for each fact whether the prompt of a call contains its word.

    This predicts whether a model can answer with an exact value: 600 of 600 answers in a published
    exam after real compactions (see docs/exam.md).

    Args:
        session: a session or a replay.
        facts: the facts.
        call: number of the call; None: the next prompt.

    Returns:
        A boolean a fact, in the order of the facts.

    Example:
        >>> import ctxkit as ck
        >>> facts = make_facts(2)
        >>> in_view = check_facts_in_prompt(plant_facts(ck.samples.path("chat"), facts), facts)
        >>> all(in_view.values())
        True
    """
    text = "\n".join(m.text for m in session.view(call))
    return {fact: fact.key in text for fact in facts}


MAX_MARKER_CHARS = 200
"""Inserted text with fewer characters is a marker, not a summary."""
AUDIT_COLUMNS = {
    "session": "string",
    "compaction": "Int64",
    "call": "Int64",
    "identifiers_n": "Int64",
    "identifiers_kept": "Float64",
    "missing": "string",
    "sections_missing": "string",
    "request_reflected": "boolean",
    "task_lost": "boolean",
    "request_lost": "boolean",
    "marker_only": "boolean",
    "orphans_n": "Int64",
    "visible_requests_n": "Int64",
}


# The checks of identifiers, sections and the latest request follow OpenClaw's summary audit; the
# structural checks (task lost, latest request lost, marker only, orphans, full turns) follow
# yoagent's scorer.
@accepts_session
def audits(session: Session, sections: Sequence[str] = ()) -> pd.DataFrame:
    """Audit each compaction: identifiers, sections and requests that remain in the prompt.

    Args:
        session: a session or a replay; without text the result has no rows.
        sections: headings that a summary must have on lines of their own.

    Returns:
        One row per compaction:

        ==================  =====================================================================
        session             id of the session
        compaction          number of the compaction
        call                the first call after it
        identifiers_n       checked identifiers of removed messages: at most 12, of the last ten
                            messages
        identifiers_kept    share of them that the prompt contains
        missing             the others
        sections_missing    headings that the inserted text lacks
        request_reflected   True where the inserted text mentions the latest request; missing where
                            nothing was inserted
        task_lost           True where the first request is no longer shown as written
        request_lost        True where the latest request is no longer shown as written
        marker_only         True where the inserted text has fewer than 200 characters
        orphans_n           tool calls and results that the compaction separated
        visible_requests_n  requests that are still shown as written
        ==================  =====================================================================

    Example:
        >>> import ctxkit as ck
        >>> table = ck.metrics.audits(ck.samples.path("billing"))
        >>> table[["compaction", "orphans_n"]].values.tolist()
        [[0, 0], [1, 0]]
    """
    import pandas as pd

    rows = list(_iter_audit_rows(session, sections)) if session.has_text else []
    return pd.DataFrame(rows, columns=list(AUDIT_COLUMNS)).astype(AUDIT_COLUMNS)


def _iter_audit_rows(session: Session, sections: Sequence[str]) -> Iterator[dict[str, Any]]:
    visible: list[Message] = []
    requests: list[Message] = []
    position = calls = 0
    for group in group_edits(session):
        for entry in session.path[position : group.position]:
            if isinstance(entry, Message):
                calls += entry.role == "assistant"
                if entry.visible:
                    visible.append(entry)
                    requests += [entry] if entry.role == "user" else []
        before = visible
        for edit in group.edits:
            visible = apply_edit(visible, edit)
        position = group.position + len(group.edits)
        yield {
            "session": session.id,
            "compaction": group.number,
            "call": calls,
            **_audit_compaction(group, before, visible, requests, sections),
        }


def _audit_compaction(
    group: CompactionEdits,
    before: Sequence[Message],
    visible: Sequence[Message],
    requests: Sequence[Message],
    sections: Sequence[str],
) -> dict[str, Any]:
    ids_before = {id(m) for m in before}
    visible_ids = {id(m) for m in visible}
    removed = [m for m in before if id(m) not in visible_ids]
    inserted_text = "\n".join(get_plain_text(m) for m in visible if id(m) not in ids_before)
    visible_text = "\n".join(map(get_plain_text, visible))
    names = summary_prompts_and_audits.select_identifiers_to_audit(
        [get_plain_text(m) for m in removed]
    )
    missing = summary_prompts_and_audits.find_lost_identifiers(names, visible_text)
    inserted_lines = {row.strip() for row in inserted_text.splitlines()}
    return {
        "identifiers_n": len(names),
        "identifiers_kept": 1 - len(missing) / len(names) if names else None,
        "missing": ", ".join(missing),
        "sections_missing": ", ".join(s for s in sections if s not in inserted_lines),
        "request_reflected": summary_prompts_and_audits.reflects_request(
            get_plain_text(requests[-1]), inserted_text
        )
        if requests and inserted_text
        else None,
        "task_lost": id(requests[0]) not in visible_ids if requests else None,
        "request_lost": id(requests[-1]) not in visible_ids if requests else None,
        "marker_only": 0 < len(inserted_text) < MAX_MARKER_CHARS
        and any(e.kind == "summarised" for e in group.edits),
        "orphans_n": len(_find_orphaned_ids(visible) - _find_orphaned_ids(before)),
        "visible_requests_n": sum(id(m) in visible_ids for m in requests),
    }


def _find_orphaned_ids(messages: Sequence[Message]) -> set[str]:
    """Return the ids of unpaired tool calls and results, except the calls of the last reply."""
    last = next((m for m in reversed(messages) if m.role == "assistant"), None)
    call_ids = {c.id for m in messages for c in m.tool_calls}
    result_ids = {m.call_id for m in messages if m.role == "tool" and m.call_id}
    closed_call_ids = {c.id for m in messages if m is not last for c in m.tool_calls}
    return (result_ids - call_ids) | (closed_call_ids - result_ids)
