"""Exams that compare ways to compact (`exam`): which of them leaves the answers to exact questions
from a log.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_usd,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.engine.run_segments_and_prompts import FIXED_KIND
from ctxkit.errors import BadArguments
from ctxkit.experiments.compaction_exam_questions import (
    QUESTIONS,
    ExamPaper,
    ExamQuestion,
    find_answers,
    make_exam,
)
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.bootstrap_and_paired_tests import mcnemar
from ctxkit.metrics.losable_items import find_missing_values
from ctxkit.session.messages import Message, Text
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session.session import Session


__all__ = ["CompactorCandidate", "ExamReport", "SummaryPromptCandidate", "exam", "make_exam"]
__dir__ = make_dunder_dir(__all__)

AnswerFunction = Callable[[Sequence[Message]], str]
"""A model as a function: from the messages of a prompt to the text of its reply."""
Candidate = Any
"""Rules or their text, summarisers, a `SummaryPromptCandidate`, or messages of another program."""
MAX_REPEATS = 20


class SummaryPromptCandidate(NamedTuple):
    """A candidate of an exam: the model under test writes the summary that this prompt asks for.

    Example:
        >>> from ctxkit.experiments import SummaryPromptCandidate
        >>> candidate = SummaryPromptCandidate("Summarise. Keep every path, number and decision.")
        >>> candidate.text[:10]
        'Summarise.'
    """

    text: str


class CompactorCandidate(NamedTuple):
    """A candidate of an exam: a function from Chat Completions messages to the compacted ones."""

    compact: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


@accepts_session
def exam(
    session: Session,
    candidates: Mapping[str, Candidate] | None = None,
    *,
    model: str | AnswerFunction | None = None,
    questions: int = QUESTIONS,
    repeats: int = 1,
    seed: int = 0,
    compaction: int | None = None,
    confirm: Callable[[str], object] | None = None,
) -> ExamReport:
    """Compare ways to compact by exact questions about the messages that a compaction removed.

    Each way gets the prompt before the compaction. Without a model the report says for each
    question whether the answer is shown, can be fetched from a file that the prompt names, or is
    gone. With a model its answers are counted too; it does not learn which way made its prompt, and
    the ways are tested in random order.

    Args:
        session: a session with text; the log of a tool, or a replay.
        candidates: ways to compact by name: rules, a preset's name, a summariser
            ``(passage) -> text``, a `SummaryPromptCandidate` (which needs a model), or the messages
            that another program left. A recorded compaction is always the first candidate; None:
            the only one.
        model: a model's name, as in ``%%agent --model``, or a function from messages to its reply;
            None: no model is called.
        questions: maximum number of questions.
        repeats: how often the model answers each question, to measure the noise.
        seed: seed of the choice of questions and the order of prompts.
        compaction: number of the recorded compaction; None: the last.
        confirm: called with a sentence on the calls and their cost before the model is called; it
            may raise.

    Returns:
        The report: a table by way, `frame()` with a row for each way and question.

    Raises:
        BadArguments: no question can be asked, or a way cannot compact the prompt.
        ModelError: the model failed.

    Example:
        >>> import ctxkit as ck
        >>> report = exam(ck.samples.path("billing"), {"pi": "pi"})
        >>> [(row.name, row.shown, row.fetchable) for row in report.results]
        [('recorded', 2, 4), ('pi', 10, 0)]
    """
    if not 1 <= repeats <= MAX_REPEATS:
        raise BadArguments(f"repeats= is 1 to {MAX_REPEATS}.")
    paper = make_exam(session, compaction, questions=questions, seed=seed)
    candidates_by_name = dict(candidates or {})
    if paper.recorded is not None:
        candidates_by_name = {"recorded": paper.recorded, **candidates_by_name}
    if not candidates_by_name:
        raise BadArguments("The session has no compaction of its own: name rules or a summariser.")
    answer = None if model is None else _as_answer_function(model)
    needs_model = any(
        isinstance(candidate, SummaryPromptCandidate) for candidate in candidates_by_name.values()
    )
    if needs_model and answer is None:
        raise BadArguments("A SummaryPromptCandidate is answered by a model: name one with model=.")
    if confirm is not None and model is not None:
        confirm(_describe_cost(paper, candidates_by_name, model, repeats))
    prompts = {
        name: _compact(paper, candidate, name, answer)
        for name, candidate in candidates_by_name.items()
    }
    grades = {} if answer is None else _ask(paper, prompts, answer, repeats, seed)
    results = tuple(
        _make_result(paper, name, p, grades.get(name, ())) for name, p in prompts.items()
    )
    return ExamReport(paper, results, model if isinstance(model, str) else None)


def _make_result(
    paper: ExamPaper,
    name: str,
    prompt: tuple[Message, ...],
    grades: Sequence[tuple[bool, ...]],
) -> CandidateResult:
    return CandidateResult(
        name=name,
        tokens=sum(map(default_counter().message, prompt)),
        changed=[m.text for m in prompt] != [m.text for m in paper.before],
        sources=find_answers(paper.questions, prompt),
        grades=tuple(grades),
    )


class CandidateResult(NamedTuple):
    """The answers that one way to compact leaves."""

    name: str
    tokens: int
    """Tokens of the prompt, by the kit's counter."""
    changed: bool
    """False where it left the prompt unchanged."""
    sources: tuple[str, ...]
    """`shown`, `fetchable` or `gone` for each question."""
    grades: tuple[tuple[bool, ...], ...]
    """Whether the model's answer was right, by repeat and question."""

    @property
    def shown(self) -> int:
        """Number of questions whose answer the prompt shows."""
        return self.sources.count("shown")

    @property
    def fetchable(self) -> int:
        """Number of questions whose answer is in a file that the prompt names."""
        return self.sources.count("fetchable")

    @property
    def gone(self) -> int:
        """Number of questions whose answer is in neither."""
        return self.sources.count("gone")

    @property
    def right(self) -> float | None:
        """Mean number of right answers of the model; None: it was not asked."""
        return mean(map(sum, self.grades)) if self.grades else None

    @property
    def noise(self) -> float | None:
        """Standard deviation of the number of right answers over repeats; None: fewer than two."""
        return stdev(map(sum, self.grades)) if len(self.grades) > 1 else None


_COLUMNS = (
    Column("compacted by", "the way to compact", number=False, firm=True),
    Column("tokens", "of the prompt that it leaves"),
    Column("shown", "questions whose answer stands in the prompt"),
    Column("fetchable", "questions whose answer is in a file that the prompt names"),
    Column("gone", "questions whose answer is nowhere"),
    Column("right", "answers of the model that are right, with the noise of repeats"),
    Column("p", "chance of such a difference to the first row, McNemar's exact test"),
)


@dataclass(frozen=True, repr=False)
class ExamReport:
    """Questions, and the answers that each way to compact leaves."""

    paper: ExamPaper
    results: tuple[CandidateResult, ...]
    model: str | None = None

    @property
    def answer(self) -> str:
        """The best way and its tokens, and the best of those that leave half of them or fewer."""
        n = len(self.paper.questions)
        unchanged = [r.name for r in self.results if not r.changed]
        changed = [r for r in self.results if r.changed]
        if not changed:
            return "No way changed the prompt, so nothing was tested."
        if all(not r.shown and not r.fetchable for r in changed):
            return f"Every way that compacts lost the answers to all {n} questions."
        best = max(changed, key=lambda r: (r.right or 0.0, r.shown, r.fetchable, -r.tokens))
        answered = "" if best.right is None else f" {best.right:.1f} were answered right."
        left = f" Not compacted by {', '.join(map(_name, unchanged))}." if unchanged else ""
        return (
            f"{_name(best.name)} answers most: of {pluralize(n, 'question')} it shows {best.shown},"
            f" in {best.tokens:,} tokens, and {best.fetchable} can be fetched.{answered}"
            f"{self._describe_best_small(best)}{left}"
        )

    def _describe_best_small(self, best: CandidateResult) -> str:
        """Return the best of the ways that leave half as much, for showing more costs tokens."""
        small = [r for r in self.results if r.changed and 2 * r.tokens <= best.tokens]
        if not small:
            return ""
        other = max(small, key=lambda r: (r.right or 0.0, r.shown, r.fetchable, -r.tokens))
        return (
            f" Of the ways that leave half as many tokens or fewer, {_name(other.name)} shows"
            f" {other.shown}, in {other.tokens:,}."
        )

    def frame(self) -> pd.DataFrame:
        """Return a row for each way and question.

        The columns are name, question, expected, family, source, needed, answer (shown, fetchable
        or gone) and right (share of repeats; missing where no model was asked).
        """
        import pandas as pd

        rows = [
            {
                "name": result.name,
                "question": question.text,
                **{k: getattr(question, k) for k in ("expected", "family", "source", "needed")},
                "answer": result.sources[i],
                "right": mean(g[i] for g in result.grades) if result.grades else None,
            }
            for result in self.results
            for i, question in enumerate(self.paper.questions)
        ]
        return pd.DataFrame(rows).astype({"right": "Float64"})

    @property
    def table(self) -> Table:
        """One row for each way."""
        is_graded = any(r.grades for r in self.results)
        columns = _COLUMNS if is_graded else _COLUMNS[:5]
        rows = []
        for result in self.results:
            figures = result.tokens, result.shown, result.fetchable, result.gone
            cells = [Cell(_name(result.name)), *(Cell(f"{n:,}") for n in figures)]
            if is_graded:
                cells += [Cell(_format_right(result)), Cell(self._compare_with_first(result))]
            rows.append(tuple(cells))
        return Table(columns, tuple(rows))

    def _compare_with_first(self, result: CandidateResult) -> str:
        first = self.results[0]
        if result is first or not result.grades or not first.grades:
            return ""
        # a question counts once, by the majority of its repeats
        votes = [
            [2 * sum(g[i] for g in r.grades) > len(r.grades) for i in range(len(r.sources))]
            for r in (first, result)
        ]
        return f"{mcnemar(*votes).p:.2g}"

    def to_text(self, *, why: bool = False) -> str:
        """Return the answer and the table; with `why`, also the questions."""
        lines = [self.answer, "", self.table.to_text()]
        if why:
            lines += ["", *map(self._describe_question, range(len(self.paper.questions)))]
        lines += ["", self.note]
        return "\n".join(lines)

    def _describe_question(self, i: int) -> str:
        question = self.paper.questions[i]
        where = ", ".join(f"{_name(r.name)} {r.sources[i]}" for r in self.results)
        return f"{i + 1}. {question.text} [{question.expected}]: {where}."

    @property
    def note(self) -> str:
        """The subject of the questions and the limits of the table."""
        number, needed = self.paper.compaction, sum(q.needed for q in self.paper.questions)
        what = "the first four fifths of the session" if number is None else f"compaction {number}"
        who = f" Asked: {self.model}." if self.model else ""
        return (
            f"{len(self.paper.questions)} exact questions about what {what} took away; {needed} of"
            f" the values were used later. Shown does not mean understood.{who}"
        )

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        answer, note = escape_html(self.answer), escape_html(self.note)
        return f'<div class="{NO_MATHJAX}"><p>{answer}</p>{self.table.to_html()}<p>{note}</p></div>'


def _name(name: str) -> str:
    return sanitize_line(name, 40)


def _format_right(result: CandidateResult) -> str:
    if result.right is None:
        return ""
    return f"{result.right:.1f}" + (f" ± {result.noise:.1f}" if result.noise is not None else "")


# -- the ways to compact ---------------------------------------------------------------------------


def _compact(
    paper: ExamPaper, candidate: Candidate, name: str, answer: AnswerFunction | None
) -> tuple[Message, ...]:
    """Return the prompt that a way leaves of the prompt before the compaction."""
    if isinstance(candidate, SummaryPromptCandidate):
        return _compact_by_prompt(paper, candidate, answer)
    if isinstance(candidate, CompactorCandidate):
        return _compact_by_program(paper, candidate)
    if isinstance(candidate, (list, tuple)) and all(isinstance(m, Message) for m in candidate):
        return tuple(candidate)
    if isinstance(candidate, (list, tuple)):
        from ctxkit.formats.reading import read

        return tuple(read(list(candidate)).messages)
    from ctxkit.policies.compaction_and_pruning_rules import Rules

    if (
        callable(candidate)
        and not isinstance(candidate, (Rules, type))
        and not _is_preset(candidate)
    ):
        return _with_summary(paper, _summarise(paper, candidate))
    try:
        return _compact_by_rules(paper, candidate)
    except BadArguments as error:
        raise BadArguments(f"{_name(name)}: {error}") from None


def _compact_by_program(paper: ExamPaper, candidate: CompactorCandidate) -> tuple[Message, ...]:
    """Return the messages that a program leaves; the same objects if it changes nothing."""
    from ctxkit.formats.conversion_losses import select_sent_messages
    from ctxkit.formats.openai import encode_chat_message
    from ctxkit.formats.reading import read

    messages = [encode_chat_message(m) for m in select_sent_messages(paper.before)]
    left = candidate.compact([dict(m) for m in messages])
    return paper.before if left == messages else tuple(read(left).messages)


def _is_preset(candidate: object) -> bool:
    from ctxkit.policies.policy_base_and_chains import BasePolicy

    is_factory = str(getattr(candidate, "__module__", "")).startswith("ctxkit.presets.")
    return is_factory or isinstance(candidate, BasePolicy)


def _compact_by_rules(paper: ExamPaper, candidate: Any) -> tuple[Message, ...]:
    """Compact the prompt once by rules, regardless of their trigger."""
    from ctxkit.engine.replay import replay
    from ctxkit.presets.registry_and_setting_checks import resolve_rules
    from ctxkit.session.session import Session

    rules = resolve_rules(candidate, once=True)
    closing = (
        Message(role="user", id="exam", parts=(Text("?"),)),
        Message(role="assistant", id="exam-answer", parts=(Text("."),)),
    )
    talk = Session(id=paper.session, log=(*paper.before, *closing), model=paper.model)
    last = len(talk.calls) - 1
    if rules.policy is not None:
        rules = rules.but(trigger=lambda history, _budget: history.call == last, guards=())
    sent = [item.message for item in replay(talk, rules).sent(last)]
    # without the closing question and without what is outside messages (tool schemas)
    return tuple(m for m in sent if m.id != "exam" and m.kind != FIXED_KIND)


def _summarise(paper: ExamPaper, summariser: Callable[[Any], Any]) -> str:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.policies.offline_summarisers import (
        SummariserInput,
        get_summary_text,
        validate_summary,
    )

    removed = [m for m in paper.before if m not in paper.retained]
    log = MessageLog.of(removed, default_counter())
    history = History.start(log, call=len(log.upto))
    return get_summary_text(validate_summary(summariser(SummariserInput(history, len(removed)))))


def _with_summary(paper: ExamPaper, summary: str) -> tuple[Message, ...]:
    system = tuple(m for m in paper.retained if m.role == "system")
    rest = tuple(m for m in paper.retained if m.role != "system")
    return (*system, Message(role="summary", id="exam-summary", parts=(Text(summary),)), *rest)


def _compact_by_prompt(
    paper: ExamPaper, candidate: SummaryPromptCandidate, answer: AnswerFunction | None
) -> tuple[Message, ...]:
    if answer is None:
        raise BadArguments("A SummaryPromptCandidate is answered by a model: name one with model=.")
    prompt = Message(role="user", id="exam-prompt", parts=(Text(candidate.text),))
    removed = [m for m in paper.before if m not in paper.retained]
    return _with_summary(paper, answer([*removed, prompt]))


def measure_answerable_share(session: Session, candidate: Candidate) -> float | None:
    """Return the share of questions whose answer a way leaves shown or fetchable.

    None where no exact question can be asked, or the way leaves the prompt unchanged.

    Args:
        session: a session with text; its last compaction with enough to ask is used.
        candidate: rules, a summariser, or messages of a compactor.

    Returns:
        A share from 0 to 1.
    """
    try:
        report = exam(session, {"": candidate})
    except BadArguments:
        return None
    result = report.results[-1]
    return (result.shown + result.fetchable) / len(result.sources) if result.changed else None


# -- the answers of a model ------------------------------------------------------------------------

_ASK = (
    "Answer from the conversation above only. For each line below give the exact value that stands"
    " in the gap, one answer a line, as `1: value`; write `unknown` where you cannot tell.\n"
)
_ANSWER_LINE = re.compile(r"^\s*(\d{1,3})\s*[:.)]\s*(.{0,1000})$", re.MULTILINE)
_ANSWER_TOKENS = 60
"""Tokens of one answer, for the estimate of the cost."""


def _ask(
    paper: ExamPaper,
    prompts: Mapping[str, tuple[Message, ...]],
    answer: AnswerFunction,
    repeats: int,
    seed: int,
) -> dict[str, list[tuple[bool, ...]]]:
    grades: dict[str, list[tuple[bool, ...]]] = {name: [] for name in prompts}
    rng = random.Random(seed)  # noqa: S311  no secret
    for _ in range(repeats):
        # in random order, so that no way is always asked first
        for name in rng.sample(list(prompts), len(prompts)):
            reply = answer([*prompts[name], make_question_message(paper.questions)])
            grades[name].append(grade_answers(paper.questions, reply))
    return grades


def make_question_message(questions: Sequence[ExamQuestion]) -> Message:
    """Return the message that puts the questions to a model."""
    lines = [f"{i}: {question.text}" for i, question in enumerate(questions, 1)]
    return Message(role="user", id="exam-questions", parts=(Text(_ASK + "\n".join(lines)),))


def grade_answers(questions: Sequence[ExamQuestion], reply: str) -> tuple[bool, ...]:
    """Return for each question whether the reply gives its exact value, in any case of letters.

    Args:
        questions: the questions, in the order of their numbers.
        reply: the model's answers, one numbered line each.
    """
    answers = {int(number): text.casefold() for number, text in _ANSWER_LINE.findall(reply)}
    return tuple(
        not find_missing_values((question.expected,), answers.get(i, ""))
        for i, question in enumerate(questions, 1)
    )


def _as_answer_function(model: str | AnswerFunction) -> AnswerFunction:
    if not isinstance(model, str):
        return model
    from ctxkit.agent.event_loop_threads import run_coroutine
    from ctxkit.agent.models.model import Request, ignore_delta
    from ctxkit.agent.models.model_factory import make_model

    provider = make_model(model, counter=default_counter(), clock=time.time)

    def answer(messages: Sequence[Message]) -> str:
        request = Request(messages=tuple(messages))
        return run_coroutine(provider(request, ignore_delta)).text

    return answer


def _describe_cost(
    paper: ExamPaper,
    candidates_by_name: Mapping[str, Candidate],
    model: str | AnswerFunction,
    repeats: int,
) -> str:
    """Return a sentence on the number of calls of an exam and their maximum cost."""
    from ctxkit.tokens.prices import price

    count = default_counter()
    prompt = sum(map(count.message, paper.before)) + len(paper.questions) * _ANSWER_TOKENS
    written = sum(
        isinstance(candidate, SummaryPromptCandidate) for candidate in candidates_by_name.values()
    )
    calls = len(candidates_by_name) * repeats + written
    name = model if isinstance(model, str) else getattr(model, "__name__", "the function")
    model_price = price(name) if isinstance(model, str) else None
    output = len(paper.questions) * _ANSWER_TOKENS * len(candidates_by_name) * repeats
    usd = None if model_price is None else model_price.request_usd(prompt * calls, output)
    cost = "at a price that is not known" if usd is None else f"for at most {format_usd(usd)}"
    return (
        f"{pluralize(calls, 'call')} of {sanitize_line(name, 60)} with at most {prompt:,} tokens"
        f" each, {cost}; the conversation is sent to that model."
    )
