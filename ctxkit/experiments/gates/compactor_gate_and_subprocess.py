"""Gate for compactors (`gate_compactor`) against a baseline, and the compactor that runs an
external command: JSON messages on stdin, the compacted ones on stdout.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from ctxkit._internal.formatting_and_sanitizing import format_percent, sanitize_line
from ctxkit.agent.child_processes import ProcessTree, find_failure_line
from ctxkit.errors import BadArguments
from ctxkit.experiments.gates.compactor_fact_survival import (
    FactSurvival,
    measure_fact_survival,
    validate_compacted_messages,
)
from ctxkit.experiments.gates.regression_gate import (
    FigureWithNoise,
    GateReport,
    SessionFigures,
    compare_with_or_write_baseline,
    load_baseline_or_fail,
    take_first_with_largest_deviation,
)

if TYPE_CHECKING:
    from ctxkit.experiments.gates.compactor_fact_survival import ChatMessages, Compactor
    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.session.session import Session


MAX_OUTPUT_BYTES = 64 << 20
"""Largest output of a program in bytes, on stdout and on stderr each."""
_POLL_SECONDS = 0.02
_MAX_STDERR_BYTES = 64 << 10
"""Bytes at the end of stderr that are searched for the line to quote."""


def command(words: str, seconds: float = 120.0) -> Compactor:
    """Return a compactor that runs a program without a shell.

    The program reads a list of Chat Completions messages as JSON from stdin and prints a list of
    messages, or an object with the key `messages`.

    Args:
        words: the command line; it is split as a shell would split it.
        seconds: time after which the program and its child processes are killed.

    Returns:
        A function from a list of messages to the compacted list, for `gate_compactor`.

    Raises:
        BadArguments: the words are no command. The compactor raises it where the program cannot be
            started, takes too long, fails, or prints no list of messages.

    Example:
        >>> from ctxkit.experiments.gates.compactor_gate_and_subprocess import command
        >>> command("cat")([{"role": "user", "content": "Hello"}])
        [{'role': 'user', 'content': 'Hello'}]
    """
    try:
        arguments = shlex.split(words)
    except ValueError as error:
        raise BadArguments(f"{words!r} is no command: {error}.") from None
    if not arguments:
        raise BadArguments("The compactor is a command, not an empty text.")

    def compact(messages: ChatMessages) -> ChatMessages:
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
            with tempfile.TemporaryFile() as stderr:
                stdin.write(json.dumps(messages).encode())
                stdin.seek(0)
                _run_program(arguments, (stdin, stdout, stderr), seconds)
            stdout.seek(0)
            return parse_compacted_messages(stdout.read())

    return compact


def _run_program(
    arguments: list[str], files: tuple[BinaryIO, BinaryIO, BinaryIO], seconds: float
) -> None:
    stdin, stdout, stderr = files
    name = sanitize_line(arguments[0], 60)
    try:
        tree = ProcessTree(arguments)
        process = tree.start(stdin=stdin, stdout=stdout, stderr=stderr)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadArguments(f"The compactor {name!r} cannot be started: {why}.") from None
    # Files instead of pipes: a program that does not read its input cannot block, and the size of
    # its output is known while it runs.
    deadline = time.monotonic() + seconds
    try:
        while True:
            code = process.poll()  # before the size check, so that the last output is counted
            if max(os.fstat(f.fileno()).st_size for f in (stdout, stderr)) > MAX_OUTPUT_BYTES:
                raise BadArguments(
                    f"The compactor {name!r} printed more than {MAX_OUTPUT_BYTES >> 20} MB."
                )
            if code is not None:
                break
            if time.monotonic() > deadline:
                raise BadArguments(
                    f"The compactor {name!r} did not answer within {seconds:g} s: --timeout gives "
                    "it longer."
                )
            time.sleep(_POLL_SECONDS)
    finally:
        tree.end_and_wait(process)
    if code:
        raise BadArguments(
            f"The compactor {name!r} failed with {_describe_exit(code)}.{_quote_stderr(stderr)}"
        )


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _quote_stderr(stderr: BinaryIO) -> str:
    """Return a sentence that quotes the last line of stderr; empty where there is none."""
    stderr.seek(max(stderr.seek(0, os.SEEK_END) - _MAX_STDERR_BYTES, 0))
    quoted = find_failure_line(stderr.read())
    return f" It said: {quoted}" if quoted else ""


def parse_compacted_messages(data: bytes) -> ChatMessages:
    """Parse the output of a compactor as messages.

    Raises:
        BadArguments: the output is no list of messages; the sentence says what it is.
    """
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        begins = sanitize_line(data[:4096].decode("utf-8", "replace"), 60)
        problem = f"it begins {begins!r}" if begins else "it is empty"
        raise BadArguments(f"The compactor's answer is no JSON: {problem}.") from None
    return validate_compacted_messages(
        answer["messages"] if isinstance(answer, dict) and "messages" in answer else answer
    )


COMPACTOR_LABEL = "compacted"


@dataclass(frozen=True, repr=False)
class CompactorGateReport(GateReport):
    """Gate report with the survival of facts for each session."""

    survivals: dict[str, FactSurvival] | None = None

    def to_text(self) -> str:
        """Return the survival tables of each session, then the verdict."""
        texts = [
            f"{name}\n{survival.to_text()}" for name, survival in (self.survivals or {}).items()
        ]
        return "\n\n".join([*texts, super().to_text()])


# Each session is compacted `rounds` times with planted facts, and again for every repetition with
# other facts; then the exam, if asked for, adds figures. The baseline is checked first, as
# measuring is slow, and written last, so that a compactor that fails leaves it as it was.
def gate_compactor(
    compact: Compactor | str,
    sessions: SessionsLike | None = None,
    baseline: str | os.PathLike[str] | None = None,
    *,
    rounds: int = 6,
    repeat: int = 1,
    timeout: float = 120.0,
    least: float = 0.0,
    update: bool = False,
    tolerance: float = 0.0,
    exam: bool = False,
) -> CompactorGateReport:
    """Check that a compactor returns valid messages and that planted facts survive it.

    Args:
        compact: a function from messages to messages (Chat Completions dictionaries), or a command
            that reads them as JSON on stdin and prints the rest; no shell is used.
        sessions: sessions whose messages are compacted; None: the sample session.
        baseline: a JSON file of earlier figures; None: only faults and `least` count.
        rounds: number of compactions of each session.
        repeat: number of repetitions with other facts; their spread is the noise of the figures,
            which matters where a model writes summaries.
        timeout: seconds that a command may take per compaction.
        least: smallest share of facts that must survive the last round.
        update: write the new figures into the baseline.
        tolerance: relative change of a figure that is accepted, as in `gate`.
        exam: also ask exact questions about what one compaction takes away, as in `gate`.

    Returns:
        A report whose `ok` is False where a figure got worse, pairs or order are broken, too few
        facts survive, or none; `untested` says where the compactor changed nothing.

    Raises:
        BadArguments: the arguments are invalid, or the compactor fails, hangs or returns no
            messages.

    Example:
        >>> from ctxkit.experiments.gates.compactor_gate_and_subprocess import gate_compactor
        >>> gate_compactor(lambda messages: messages, rounds=2).ok
        True
    """
    if repeat < 1 or not 0 <= least <= 1:
        raise BadArguments("repeat= is 1 or more, least= a share between 0 and 1.")
    if update and baseline is None:
        raise BadArguments("update= writes a baseline: name its file with baseline=.")
    before = None if baseline is None else load_baseline_or_fail(baseline, tolerance, update=update)
    session_list = _sessions_or_sample(sessions)
    compactor = command(compact, timeout) if isinstance(compact, str) else compact
    survivals = {
        s.id: [measure_fact_survival(compactor, s, rounds, seed=i) for i in range(repeat)]
        for s in session_list
    }
    now = {
        COMPACTOR_LABEL: {s.id: _measure_survival(s, survivals[s.id], rounds) for s in session_list}
    }
    if exam:
        now = {
            COMPACTOR_LABEL: {
                s.id: _add_exam(now[COMPACTOR_LABEL][s.id], s, compactor) for s in session_list
            }
        }
    faults = tuple(
        dict.fromkeys(f for every in survivals.values() for one in every for f in one.faults)
    )
    report = (
        GateReport(())
        if baseline is None
        else compare_with_or_write_baseline(before, now, baseline, tolerance)
    )
    survived = {n: e.figures["survived"].value for n, e in now[COMPACTOR_LABEL].items()}
    faults += tuple(
        f"{n}: {format_percent(share)} of the facts outlive {rounds} rounds, less than"
        f" {format_percent(least)}."
        for n, share in survived.items()
        if share < least
    )
    faults += tuple(
        f"{n}: no fact outlives a compaction: a program that drops everything does not pass."
        for n, every in survivals.items()
        if least == 0 and not any(s.get_share(1) for s in every)
    )
    untested = tuple(
        f"{n}: the compactor left every message as it was, so the gate says nothing about it."
        for n, every in survivals.items()
        if not any(s.changes for s in every)
    )
    first = {name: every[0] for name, every in survivals.items()}
    return CompactorGateReport(
        report.changes, (*faults, *report.faults), report.notes, untested, survivals=first
    )


def _sessions_or_sample(sessions: SessionsLike | None) -> list[Session]:
    from ctxkit.formats import samples
    from ctxkit.formats.sessions_from_arguments import as_sessions
    from ctxkit.session.session import with_unique_ids

    return with_unique_ids(as_sessions(samples.path() if sessions is None else sessions))


def _add_exam(measured: SessionFigures, session: Session, compactor: Compactor) -> SessionFigures:
    """Return the figures with the share of exam questions that a compactor leaves answerable."""
    from ctxkit.experiments.exams_comparing_ways_to_compact import CompactorCandidate
    from ctxkit.experiments.gates.regression_gate import add_exam_share

    return add_exam_share(measured, session, CompactorCandidate(compactor))


def _measure_survival(
    session: Session, survivals: list[FactSurvival], rounds: int
) -> SessionFigures:
    from ctxkit.experiments.sweep_workers import make_session_key

    figures: dict[str, FigureWithNoise] = {
        "read_faults_n": take_first_with_largest_deviation(
            [float(len(s.faults)) for s in survivals]
        ),
        "survived": take_first_with_largest_deviation([s.survived for s in survivals]),
        "cliff_round": take_first_with_largest_deviation([float(s.cliff) for s in survivals]),
        "stale_values_n": take_first_with_largest_deviation(
            [float(s.rounds[-1].stale_values_n) for s in survivals]
        ),
        "outdated_n": take_first_with_largest_deviation(
            [float(s.rounds[-1].wrong_n) for s in survivals]
        ),
        "tokens_left": take_first_with_largest_deviation([s.tokens_left for s in survivals]),
    }
    return SessionFigures(key=f"{make_session_key(session)}-{rounds}", figures=figures)
