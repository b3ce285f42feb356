"""Exam questions from a session's log that only messages removed by a compaction can answer."""

# Making an exam paper
#
# A compaction divides a session: `before` is the prompt that it compacts, `retained` are the
# messages that it leaves unchanged, and all others are removed. A question is a line of a removed
# message with a gap in place of one exact value (path, URL, id, number). It is asked if the value
# is only in removed messages, no other line fits the same gap, and enough words remain to recognise
# the line. Values that a later reply used come first: those were needed.

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import quote_line, sanitize_line
from ctxkit._internal.redaction import REDACTION_MARK
from ctxkit.errors import BadArguments
from ctxkit.metrics.losable_items import (
    extract_text_items,
    find_missing_values,
    iter_texts_and_argument_strings,
)
from ctxkit.session.compactions_and_prunings import group_edits
from ctxkit.session.messages import Message, Text
from ctxkit.session.session import apply_edit
from ctxkit.session.tool_call_paths_and_descriptions import get_call_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.session.session import Session


QUESTIONS = 10
"""Default number of questions of a paper."""
GAP = "____"
AnswerSource = Literal["shown", "fetchable", "gone"]
"""Location of an answer: in the prompt, in a file that the prompt names, or nowhere."""
_ASKED_FAMILIES = frozenset(("path", "url", "id", "number"))
_MIN_WORDS = 4
"""Fewest words that a line needs in addition to the gap."""
_MAX_LINE_CHARS, _MAX_LINES = 300, 20_000
"""Longest line that can be a question, and maximum number of lines that are searched."""
_TAIL_SHARE = 0.2
"""Share of the messages that remain if a session without a compaction is divided."""


class ExamQuestion(NamedTuple):
    """A line of a removed message with a gap in place of one value."""

    line: str
    expected: str
    family: str
    source: str
    """The role or tool that stated it."""
    path: str | None
    """The file whose content it is; None: no file."""
    needed: bool
    """True where a reply after the compaction used the value."""

    @property
    def text(self) -> str:
        """The question as text for a model."""
        return f"Which exact value stands in the gap of this line of {self.source}: {self.line}"


class ExamPaper(NamedTuple):
    """Questions about the messages that one compaction removed."""

    session: str
    model: str | None
    compaction: int | None
    """The number of the recorded compaction; None: a session without one was divided."""
    before: tuple[Message, ...]
    """The prompt before the compaction."""
    retained: tuple[Message, ...]
    """The messages of that prompt that the compaction left unchanged."""
    recorded: tuple[Message, ...] | None
    """The prompt after the recorded compaction."""
    questions: tuple[ExamQuestion, ...]


def make_exam(
    session: Session, compaction: int | None = None, *, questions: int = QUESTIONS, seed: int = 0
) -> ExamPaper:
    """Make questions about the messages that a compaction removed.

    Args:
        session: a session with text.
        compaction: number of the recorded compaction; None: the last one with enough to ask, and in
            a session without compactions the first four fifths count as removed.
        questions: maximum number of questions.
        seed: seed of the choice among equally good questions.

    Returns:
        The questions, with the prompt before the compaction and what the record left of it.

    Raises:
        BadArguments: the log has no text, no such compaction, or nothing exact to ask for.

    Example:
        >>> import ctxkit as ck
        >>> paper = make_exam(ck.read(ck.samples.path("billing")))
        >>> len(paper.questions), paper.compaction
        (10, 1)
    """
    if questions < 1:
        raise BadArguments("questions= is 1 or more.")
    if not session.has_text:
        raise BadArguments(f"Session {quote_line(session.id)} has no text to ask about.")
    divisions = list(_iter_divisions(session, compaction))
    if not divisions:
        raise BadArguments(f"Session {quote_line(session.id)} has no compaction {compaction}.")
    papers = (_make_paper(session, d, questions, seed) for d in divisions)
    best = max(papers, key=lambda p: len(p.questions))
    if not best.questions:
        raise BadArguments(
            f"Session {quote_line(session.id)}: nothing exact that was taken away can be"
            " asked for; an exam needs a longer session."
        )
    return best


class _Division(NamedTuple):
    compaction: int | None
    before: list[Message]
    after: list[Message]
    later: list[Message]
    """The messages that came after it."""


def _iter_divisions(session: Session, compaction: int | None) -> Iterator[_Division]:
    """Yield the recorded compactions, the last one first, else one division of the session."""
    divisions: list[_Division] = []
    visible: list[Message] = []
    position, path = 0, session.path
    for group in group_edits(session):
        entries = path[position : group.position]
        visible += [e for e in entries if isinstance(e, Message) and e.visible]
        before = list(visible)
        for edit in group.edits:
            visible = apply_edit(visible, edit)
        position = group.position + len(group.edits)
        later = [e for e in path[position:] if isinstance(e, Message)]
        divisions.append(_Division(group.number, before, list(visible), later))
    if divisions or compaction is not None:
        yield from (d for d in divisions[::-1] if compaction in (None, d.compaction))
        return
    messages = [m for m in session.messages if m.visible]
    tail_start = _find_turn_start(messages, round(len(messages) * (1 - _TAIL_SHARE)))
    yield _Division(None, messages, messages[tail_start:], [])


def _find_turn_start(messages: Sequence[Message], position: int) -> int:
    """Return the first position at or after a given one at which no call waits for its result."""
    while position < len(messages) and messages[position].role == "tool":
        position += 1
    return position


def _make_paper(session: Session, division: _Division, n: int, seed: int) -> ExamPaper:
    after_ids = {id(m) for m in division.after}
    before_ids = {id(m) for m in division.before}
    remaining = tuple(m for m in division.before if id(m) in after_ids or m.role == "system")
    removed = [m for m in division.before if id(m) not in after_ids and m.role != "system"]
    later_text = _fold(division.later)
    hidden = _fold([*remaining, *(m for m in division.later if id(m) not in before_ids)])
    candidates = list(_iter_questions(removed, _fold(remaining), later_text))
    rng = random.Random(f"{seed}-{session.id}")  # noqa: S311  no secret
    rng.shuffle(candidates)
    # Needed values first; among equals a value that later messages state again comes last.
    candidates.sort(key=lambda q: (not q.needed, q.expected.casefold() in hidden and not q.needed))
    return ExamPaper(
        session=session.id,
        model=session.model,
        compaction=division.compaction,
        before=tuple(division.before),
        retained=remaining,
        recorded=None if division.compaction is None else tuple(division.after),
        questions=tuple(_choose_questions(candidates, n)),
    )


def _choose_questions(candidates: Sequence[ExamQuestion], n: int) -> list[ExamQuestion]:
    """Return the first `n` questions that ask for different values."""
    chosen: dict[str, ExamQuestion] = {}
    for question in candidates:
        if len(chosen) < n:
            chosen.setdefault(question.expected.casefold(), question)
    return list(chosen.values())


def _fold(messages: Iterable[Message]) -> str:
    return "\n".join(t for m in messages for t in iter_texts_and_argument_strings(m)).casefold()


def _iter_questions(
    removed: Sequence[Message], remaining: str, later: str
) -> Iterator[ExamQuestion]:
    """Yield all questions with a single answer that only removed messages contain."""
    answers: dict[str, dict[str, ExamQuestion]] = {}
    paths = {c.id: path for m in removed for c in m.tool_calls if (path := get_call_path(c))}
    lines = 0
    for message in removed:
        for line in _iter_lines(message):
            lines += 1
            if lines > _MAX_LINES:
                break
            for family, value in {(i.family, i.text) for i in extract_text_items(line)}:
                if family not in _ASKED_FAMILIES or line.casefold().count(value.casefold()) != 1:
                    continue
                at = line.casefold().index(value.casefold())
                gapped = f"{line[:at]}{GAP}{line[at + len(value) :]}"
                source = f"a result of {message.tool}" if message.tool else f"the {message.role}"
                path = paths.get(message.call_id or "")
                is_needed = not find_missing_values((value,), later)
                question = ExamQuestion(
                    gapped, line[at : at + len(value)], family, source, path, is_needed
                )
                answers.setdefault(gapped.casefold(), {})[value.casefold()] = question
    for by_value in answers.values():
        (value, question), *others = by_value.items()
        if not others and find_missing_values((value,), remaining):
            yield question


def _iter_lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, Text):
            for line in part.text.splitlines():
                flat = sanitize_line(line, 2 * _MAX_LINE_CHARS)
                is_askable = len(flat) <= _MAX_LINE_CHARS and len(_WORD.findall(flat)) > _MIN_WORDS
                if is_askable and REDACTION_MARK not in flat:  # a line with a secret is not asked
                    yield flat


_WORD = re.compile(r"[^\W\d_]{2,}")


def find_answers(
    questions: Sequence[ExamQuestion], prompt: Sequence[Message]
) -> tuple[AnswerSource, ...]:
    """Return for each question whether a prompt shows its answer or names a file that contains it.

    Args:
        questions: the questions.
        prompt: the messages of the prompt.

    Returns:
        `shown`, `fetchable` (a file with the answer is named) or `gone` for each question.
    """
    folded = _fold(prompt)
    return tuple(find_answer_source(q.expected, q.path, folded) for q in questions)


def find_answer_source(expected: str, path: str | None, folded_prompt: str) -> AnswerSource:
    """Return the source of a value: see `find_answers`; the prompt is one casefolded text.

    Args:
        expected: the value, compared as a whole word.
        path: file that contains the value; None: none is known.
        folded_prompt: the prompt as one casefolded text.

    Returns:
        `shown`, `fetchable` or `gone`; see `find_answers`.

    Example:
        >>> from ctxkit.experiments.compaction_exam_questions import find_answer_source
        >>> find_answer_source("8443", "etc/a.toml", "read etc/a.toml first")
        'fetchable'
    """
    if not find_missing_values((expected,), folded_prompt):
        return "shown"
    return "fetchable" if path and path.casefold() in folded_prompt else "gone"
