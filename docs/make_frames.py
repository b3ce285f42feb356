"""Write docs/frames.md from the column definitions: `python docs/make_frames.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.metrics.frames import FRAME_COLUMNS

if TYPE_CHECKING:
    from ctxkit.metrics.frames.frame_column import FrameColumn

_HEAD = """# Frames

`ctxkit.frame(session, per="turn")` returns a pandas DataFrame with the columns of this page: the same names, dtypes and
order for every session, even without rows. `help(ck.frame)` says how messages are counted (`count=`) and where their
texts are. `python docs/make_frames.py` writes the page from the definitions in the code.

- **Missing, never zero**: a value that the log does not have is `<NA>` (`NaT` for times); `session.notes` says why.
- **Sources**: `recorded` is in the log, `derived` follows from recorded numbers, `estimated` is neither. The column
  `source` is about the token columns of a row; a value that can have another source has its own source column.
- **Dollars**: the rows of the call frame or of the turn frame add up to `calls_usd`, those of the compaction frame to
  `summaries_usd`. Both together are `cost_usd` in the session frame, `ck.score`, `ck.compare`, `ck.board` and
  `ctxkit list`; `ck.spend(session).total_usd` adds the subagents. A replay has the cache lifetime and
  cache misses of its record. Differences below the noise floor (21 % over 50 tasks) do not count
  ([scores.md](scores.md)).
- **Merging**: frames share names, so give the other frame's columns a suffix:
  `calls.merge(sessions, on="session", suffixes=("", "_of_session"))`.
"""
_DESCRIPTIONS = {
    "message": (
        "One row per message of the conversation; each tool result is a message of its own."
        " Summaries that a compaction inserted are in the compaction frame. Sizes do not include"
        " encrypted reasoning. Events that the program recorded (a retry, a reply that it made up)"
        " have the role system and are not visible. The beginning of a conversation that is not in"
        " the file becomes rows of kind `lost`, with a size and no text. A sidechain (a subagent's"
        " messages) without a recorded start is part of the conversation. Output of the program"
        " (aider's `>` lines) counts as the user's if a reply follows directly, because it was"
        " then sent to the model."
    ),
    "call": (
        "One row per request to a model with its reply, including failed ones; retries are not"
        " calls. Several lines with one id are one call. If all ids are equal, a call ends where a"
        " line of another kind follows. A prompt of zero tokens counts as missing, with its parts,"
        " and so does a usage that is all zeros. If a log has only the first piece of a stream,"
        " the output is estimated from the growth of the next prompt and from the text. A price of"
        " $0 counts as no price."
    ),
    "turn": (
        "One row per turn of an agent, in the columns of fuseraft's snapshots. For a live"
        " session, the frame agrees with `live.turns` and the snapshot log (columns up to"
        " `compaction_occurred`, no turn without billed input); after a branch or a restore, all"
        " have the turns of the current conversation. A replay of a live session's record under"
        " its own rules agrees, too, if it is made with `last_usage=True`, until a manual"
        " compaction, one that an overflow forced, or a summary by a model. Cumulative sums are"
        " per agent (names compared without case), and restart for all agents after a compaction."
        " A compaction within a turn counts as one before that turn: the turn before it has"
        " `compaction_occurred`, and the new sum begins with the whole turn in which it happened."
        " A compaction after the last call of a turn counts as one after that turn."
    ),
    "compaction": (
        "One row per compaction. Its sizes are recorded if the log has them, such as the prompt"
        " of the call that wrote the summary. Otherwise the size before is that of the last"
        " recorded prompt and its reply, or of the counted messages if these are more. The size"
        " after is the next recorded prompt less the messages added in between, or the size before"
        " less the counted difference. Without any usage, both are counted. A row of kind"
        " `unmarked` is a drop of the recorded prompt, with the same agent and model, by more than"
        " a twentieth and 1,024 tokens. No mark in the log explains it, and the next call does not"
        " undo it; its sizes are the two prompts. A summary without a recorded price is estimated"
        " as in a replay: the summarised messages as uncached input, and what a model would write"
        " of the summary as output."
    ),
    "session": (
        "One row per session: its identity, what its log contains, its totals, and what the reader"
        " skipped. A tool result counts as failed if the log marks it, or in Codex, mini-SWE-agent"
        " and OpenHands if the exit code of a command is not 0. Sessions that share an id get"
        " different ids: the second is `id (2)`."
    ),
}


def format_page() -> str:
    """Return the page in Markdown."""
    return _HEAD + "".join(
        f'\n## per="{per}"\n\n{_DESCRIPTIONS[per]}\n\n{_format_columns(columns)}'
        for per, columns in FRAME_COLUMNS.items()
    )


def _format_columns(columns: tuple[FrameColumn, ...]) -> str:
    rows = [f"| `{c.name}` | {c.dtype} | {c.unit} | {c.meaning} |" for c in columns]
    return (
        "\n".join(["| column | dtype | unit | meaning |", "| --- | --- | --- | --- |", *rows])
        + "\n"
    )


if __name__ == "__main__":
    Path(__file__).with_name("frames.md").write_text(format_page(), encoding="utf-8")
