"""The default summary of a passage of a real log: first, with another budget, again, with a focus.

The peers are its plain definition over strings, to which the tests compare it, and LexRank and
TextRank of sumy on the same lines, where sumy is installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctxkit as ck
from benchmarks.cpu_timing import measure_cpu
from ctxkit.engine import make_log_from_session
from ctxkit.policies.history import History
from ctxkit.policies.offline_summarisers import ExtractiveSummariser, SummariserInput
from ctxkit.policies.texts import message_lines_for_extracts as line_index
from ctxkit.policies.texts import summary_prompts_and_audits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.session.session import Session

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from extract_reference import extract as extract_by_definition

MESSAGES = 300
REAL = Path(os.environ.get("CTXKIT_SESSIONS", "")) / "pi" / "before-compaction.jsonl"
FOCUS = summary_prompts_and_audits.format_identifier_instructions("off", focus="keep the ids")


def make_passage(
    session: Session, more_messages: int = 0, instructions: str = ""
) -> SummariserInput:
    """Return the first messages of a session, as at its last call, in a new log."""
    log = make_log_from_session(session)
    return SummariserInput(
        History.start(log, log.calls - 1),
        min(MESSAGES, len(log)) + more_messages,
        instructions=instructions,
    )


def get_summary_budget(passage: SummariserInput) -> int:
    """Return the tokens that the extract of a passage may have by default."""
    return min(
        ExtractiveSummariser().tokens, max(int(ExtractiveSummariser().share * passage.tokens), 40)
    )


def measure_median(works: list[Callable[[], object]]) -> float:
    """Return the median CPU seconds of functions, each called once."""
    seconds = []
    for work in works:
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return sorted(seconds)[len(seconds) // 2]


def measure_sumy(messages: list[Any]) -> list[tuple[str, float]]:
    """Return the CPU seconds of sumy's LexRank and TextRank on the same lines, if installed."""
    if importlib.util.find_spec("sumy") is None:
        return []
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
    from sumy.summarizers.lex_rank import LexRankSummarizer
    from sumy.summarizers.text_rank import TextRankSummarizer

    class WordTokenizer:
        def to_words(self, text: str) -> tuple[str, ...]:
            return tuple(sorted(line_index.extract_line_words(text)))

    lines = [
        text
        for m in messages
        for _, text in line_index.split_message_lines(m)
        if line_index.extract_line_words(text)
    ]
    document = ObjectDocumentModel([Paragraph([Sentence(text, WordTokenizer()) for text in lines])])
    sentences_n = (
        ExtractiveSummariser().extract(messages, ExtractiveSummariser().tokens).count("\n") + 1
    )
    summarizers = {"LexRank": LexRankSummarizer, "TextRank": TextRankSummarizer}
    return [
        (name, measure_cpu(lambda k=summarizer: k()(document, sentences_n), 1))
        for name, summarizer in summarizers.items()
    ]


def make_row(
    name: str, ours: float, peer: float, peer_name: str, goal: str, scale: float = 1e3
) -> dict[str, object]:
    unit = {1e3: "ms CPU", 1e6: "us CPU"}[scale]
    description = (
        f"the default summary of a passage of {MESSAGES} messages, {name}, against {peer_name}"
    )
    figures = {"ours": scale * ours, "peer": scale * peer, "ratio": peer / ours}
    return {"name": description, **figures, "goal": goal, "unit": unit}


def run() -> list[dict[str, object]]:
    path = REAL if REAL.is_file() else ck.samples.path()
    ck.read(path)
    passages = [make_passage(ck.read(path)) for _ in range(5)]
    messages = list(passages[0].messages)
    assert ExtractiveSummariser()(make_passage(ck.read(path))) == extract_by_definition(
        messages, get_summary_budget(passages[0])
    )
    definition_seconds = measure_cpu(
        lambda: extract_by_definition(messages, get_summary_budget(passages[0])), 3
    )
    first_seconds = measure_median([lambda p=p: ExtractiveSummariser()(p) for p in passages])

    p = passages[0]
    other_budget_seconds = measure_median(
        [lambda n=n: ExtractiveSummariser(n)(p) for n in range(1400, 1499, 9)]
    )
    longer_seconds = measure_median(
        [lambda n=n: ExtractiveSummariser()(change_passage(p, n)) for n in range(1, 12)]
    )
    repeated_seconds = (
        measure_cpu(lambda: [ExtractiveSummariser()(change_passage(p, 0)) for _ in range(1000)])
        / 1000
    )
    focused_seconds = measure_median(
        [
            lambda n=n: ExtractiveSummariser(n)(change_passage(p, 0, FOCUS))
            for n in range(1400, 1499, 9)
        ]
    )
    definition = "its plain definition"
    return [
        make_row("first", first_seconds, definition_seconds, definition, "ours <= 30"),
        *[
            make_row("first", first_seconds, seconds, f"sumy's {name}", ">= 20")
            for name, seconds in measure_sumy(messages)
        ],
        make_row(
            "in another token budget",
            other_budget_seconds,
            definition_seconds,
            definition,
            "ours <= 4",
        ),
        make_row(
            "with some messages more", longer_seconds, definition_seconds, definition, "ours <= 4"
        ),
        make_row(
            "with a focus, in another token budget",
            focused_seconds,
            definition_seconds,
            definition,
            "ours <= 6",
        ),
        make_row(
            "the same again", repeated_seconds, definition_seconds, definition, "ours <= 20", 1e6
        ),
    ]


def change_passage(
    passage: SummariserInput, more_messages: int, instructions: str = ""
) -> SummariserInput:
    """Return a new passage with some messages more, or with a focus."""
    return SummariserInput(
        passage.history, passage.before + more_messages, instructions=instructions
    )


if __name__ == "__main__":
    for line in run():
        print(f"{line['name']:110s}", line["ours"], line["peer"], line["unit"], line["goal"])
