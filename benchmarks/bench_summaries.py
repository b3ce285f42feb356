"""The default summary of a passage of a real log: first, in another room, again, with a focus.

The peer is its plain definition over strings, which the tests hold it to, and LexRank and TextRank
of sumy on the same lines, where sumy is installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctxkit as ck
from benchmarks.cpu_timing import cpu
from ctxkit.engine import make_log_from_session
from ctxkit.policies.history import History
from ctxkit.policies.offline_summarisers import ExtractiveSummariser, SummariserInput
from ctxkit.policies.texts import message_lines_for_extracts as line_index
from ctxkit.policies.texts import summary_prompts_and_audits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.session.session import Session

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from extract_reference import extract as by_definition

MESSAGES = 300
REAL = Path(os.environ.get("CTXKIT_SESSIONS", "")) / "pi" / "before-compaction.jsonl"
FOCUS = summary_prompts_and_audits.format_identifier_instructions("off", focus="keep the ids")


def passage(session: Session, more: int = 0, instructions: str = "") -> SummariserInput:
    """The first messages of a session, as at its last call, in a log of its own."""
    log = make_log_from_session(session)
    return SummariserInput(
        History.start(log, log.calls - 1), min(MESSAGES, len(log)) + more, instructions=instructions
    )


def context_budget(p: SummariserInput) -> int:
    """Tokens that the extract of a passage may have by default."""
    return min(ExtractiveSummariser().tokens, max(int(ExtractiveSummariser().share * p.tokens), 40))


def each(works: list[Callable[[], object]]) -> float:
    """Median CPU seconds of works that are done once each."""
    taken = []
    for work in works:
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return sorted(taken)[len(taken) // 2]


def peers(messages: list[Any]) -> list[tuple[str, float]]:
    """CPU seconds of sumy's LexRank and TextRank on the same lines; none where it is missing."""
    if importlib.util.find_spec("sumy") is None:
        return []
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
    from sumy.summarizers.lex_rank import LexRankSummarizer
    from sumy.summarizers.text_rank import TextRankSummarizer

    class Words:
        def to_words(self, text: str) -> tuple[str, ...]:
            return tuple(sorted(line_index.extract_line_words(text)))

    lines = [
        text
        for m in messages
        for _, text in line_index.split_message_lines(m)
        if line_index.extract_line_words(text)
    ]
    document = ObjectDocumentModel([Paragraph([Sentence(text, Words()) for text in lines])])
    wanted = ExtractiveSummariser().extract(messages, ExtractiveSummariser().tokens).count("\n") + 1
    kinds = {"LexRank": LexRankSummarizer, "TextRank": TextRankSummarizer}
    return [(name, cpu(lambda k=kind: k()(document, wanted), 1)) for name, kind in kinds.items()]


def row(
    name: str, ours: float, peer: float, against: str, goal: str, scale: float = 1e3
) -> dict[str, object]:
    unit = {1e3: "ms CPU", 1e6: "us CPU"}[scale]
    told = f"the default summary of a passage of {MESSAGES} messages, {name}, against {against}"
    figures = {"ours": scale * ours, "peer": scale * peer, "ratio": peer / ours}
    return {"name": told, **figures, "goal": goal, "unit": unit}


def run() -> list[dict[str, object]]:
    path = REAL if REAL.is_file() else ck.samples.path()
    ck.read(path)
    fresh = [passage(ck.read(path)) for _ in range(5)]
    messages = list(fresh[0].messages)
    assert ExtractiveSummariser()(passage(ck.read(path))) == by_definition(
        messages, context_budget(fresh[0])
    )
    plain = cpu(lambda: by_definition(messages, context_budget(fresh[0])), 3)
    first = each([lambda p=p: ExtractiveSummariser()(p) for p in fresh])

    p = fresh[0]
    rooms = each([lambda n=n: ExtractiveSummariser(n)(p) for n in range(1400, 1499, 9)])
    longer = each([lambda n=n: ExtractiveSummariser()(passage_of(p, n)) for n in range(1, 12)])
    again = cpu(lambda: [ExtractiveSummariser()(passage_of(p, 0)) for _ in range(1000)]) / 1000
    focused = each(
        [lambda n=n: ExtractiveSummariser(n)(passage_of(p, 0, FOCUS)) for n in range(1400, 1499, 9)]
    )
    definition = "its plain definition"
    return [
        row("first", first, plain, definition, "ours <= 30"),
        *[
            row("first", first, seconds, f"sumy's {name}", ">= 20")
            for name, seconds in peers(messages)
        ],
        row("in another room", rooms, plain, definition, "ours <= 4"),
        row("with some messages more", longer, plain, definition, "ours <= 4"),
        row("with a focus, in another room", focused, plain, definition, "ours <= 6"),
        row("the same again", again, plain, definition, "ours <= 20", 1e6),
    ]


def passage_of(p: SummariserInput, more: int, instructions: str = "") -> SummariserInput:
    """The same passage with some messages more, or with a focus; made again."""
    return SummariserInput(p.history, p.before + more, instructions=instructions)


if __name__ == "__main__":
    for line in run():
        print(f"{line['name']:110s}", line["ours"], line["peer"], line["unit"], line["goal"])
