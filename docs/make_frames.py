"""Write docs/frames.md from the column definitions: `python docs/make_frames.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.metrics.frames import FRAME_COLUMNS

if TYPE_CHECKING:
    from ctxkit.metrics.frames.frame_column import FrameColumn

_HEAD = """# Frames

`ctxkit.frame(session, per="turn")` returns a pandas DataFrame with fixed columns: the same names, dtypes and order for
every session, also if there is no row. A list of sessions works too; `children=True` includes the sessions of subagents.
`python docs/make_frames.py` writes this page from the definitions in the code, and a test compares it.

- **Tidy**: one observation per row, one frame for all given sessions.
- **Missing, never zero**: a value that the log does not have is `<NA>` (`NaT` for times). All dtypes can represent it.
- **Notes**: `session.notes` and the session frame say in sentences what the log leaves out or gets wrong.
- **Sources**: `recorded` is in the log, `derived` follows from recorded numbers, `estimated` is neither. The column
  `source` is about the token columns of a row; a value that can have another source has its own source column.
- **Within noise**: dollars of two settings or sessions that differ by less than the noise floor (21 % over 50 tasks,
  more over fewer) are not considered different; [scores.md](scores.md) says how `ck.compare` decides this.
- **Dollars**: `cost_usd` of a session is the sum of its calls (`calls_usd`) and of the summaries of its compactions
  (`summaries_usd`), without subagents. `ck.score`, `ck.compare`, `ck.board` and `ctxkit list` use the same definition.
  The rows of the call frame or of the turn frame add up to `calls_usd`, those of the compaction frame to
  `summaries_usd`. With subagents it is `ck.spend(session).total_usd`, and `with_subagents_usd` in `ctxkit list`. A replay
  is billed with the cache of its record: its cached tokens and dollars are those of `ck.compare`.
- **Counting**: `count=` selects how messages and compactions are counted: by default a quarter of the characters (an
  image counts as 1,200 tokens), `"exact"` for the tokenizer, `"anchored"` for sizes scaled to the recorded usage, the
  name of an estimate (`"pi"`, `"fuseraft"`, ...), or your own counter. Calls, turns and sessions have the recorded
  sizes.
- **Numbers** of calls, turns, compactions and positions start at 0.
- **Negative savings** are possible: a summary can be larger than the messages that it replaced.
- **Texts** are in no frame: the text of a message row is `session.path[position].text`, and `ck.find(path, "words")`
  searches the texts of a file or folder (its column `position` is the same).
- **Merging**: frames share more names than their keys, so name the other frame's columns:
  `calls.merge(sessions, on="session", suffixes=("", "_of_session"))`.
"""
_DESCRIPTIONS = {
    "message": (
        "One row per message of the conversation; each tool result is a message of its own."
        " Summaries that a compaction inserted are in the compaction frame. Encrypted reasoning is"
        " not included in sizes. Events that the program recorded beside the conversation (a retry,"
        " a reply that it made up) have the role system and are not visible. The beginning of a"
        " conversation that is not in the file becomes rows of kind `lost`, which have a size and no"
        " text. A sidechain without a recorded start counts as part of the conversation. Output of"
        " the program (aider's `>` lines) counts as the user's if a reply follows directly, because"
        " it was then sent to the model."
    ),
    "call": (
        "One row per request to a model with its reply, including failed ones. A call that is"
        " written in several lines is one call; retries are not calls. If all ids are the same word,"
        " a call ends where another kind of line follows. `prompt_tokens = input_tokens +"
        " cache_read_tokens + cache_write_tokens`; a prompt of zero tokens counts as missing, with"
        " its parts, and so does a usage of zeros only. If a log has only the first piece of a"
        " stream, the output is estimated from the growth of the next prompt and from the text, and"
        " so is its cost. A price of $0 counts as no price."
    ),
    "turn": (
        "One row per turn of an agent, with the columns and names of fuseraft's snapshots."
        " `live.turns`, the snapshot log and the frame of the recorded session agree: the snapshot"
        " log has the columns up to `compaction_occurred` (its `source` is recorded), and no line"
        " for a turn without billed input. The replay of a live session's record under its own rules"
        " with `last_usage=True` has equal columns, with the provider's bills, and compacts at the"
        " same places. It cannot repeat compactions made by hand or forced by an overflow, nor the"
        " text of a model's summary; after one of these its values differ. A replay without"
        " `last_usage` models all prompts. After a branch or a restore all three have the turns of"
        " the current conversation: lines of abandoned turns are removed from the snapshot log, and"
        " stay in the session's own log. Cumulative sums are per agent (names compared without"
        " case), and start again for all agents after a compaction. A compaction within a turn"
        " counts as one before that turn, because its mark is in the log before the line that is"
        " written at the turn's end. The turn before it has `compaction_occurred`, and the new"
        " cumulative sum begins with the whole turn in which it happened; a compaction after the"
        " last call of a turn counts as one after that turn."
    ),
    "compaction": (
        "One row per compaction. Its sizes are recorded if the log has them, such as the prompt of"
        " the call that wrote the summary. Otherwise the size before is that of the last recorded"
        " prompt and its reply, or of the counted messages if these are more (they include messages"
        " that came later), and the size after is the next recorded prompt less the messages added"
        " in between, or the size before less the counted difference. Without any usage both are"
        " counted. A row of kind `unmarked` is a drop of the recorded prompt by more than a"
        " twentieth and 1,024 tokens that no mark in the log explains, of the same agent and model,"
        " and not undone at the next call; its sizes are the two prompts. A summary without a"
        " recorded price is estimated as in a replay: the summarised messages as uncached input, the"
        " summary as output. In a replay the output is the part that a model would write: evidence,"
        " intents and other texts computed from the record cost nothing."
    ),
    "session": (
        "One row per session: its identity, what its log contains, its totals, and what the reader"
        " skipped. A tool result counts as failed if the log marks it; Codex, mini-SWE-agent and"
        " OpenHands do not mark failed commands, for which an exit code other than 0 counts."
        " Sessions that share an id get different ids: the second is `id (2)`."
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
