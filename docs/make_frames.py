"""Write docs/frames.md from the column definitions: `python docs/make_frames.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.metrics.frames import FRAME_COLUMNS

if TYPE_CHECKING:
    from ctxkit.metrics.frames.columns import FrameColumn

_HEAD = """# Frames

`ctxkit.frame(session, per="turn")` gives a pandas DataFrame with fixed columns: the same names, dtypes and order
whatever the session holds, also where there is no row. A list of sessions works too; `children=True` takes the sessions
of subagents with them. This page is written from the tables in the code: a test says when it is behind, and
`python docs/make_frames.py` writes it.

- **Tidy**: one observation a row, one frame over all sessions given.
- **Missing, never zero**: what a log cannot say is `<NA>` (`NaT` for times). All dtypes can hold it.
- **Notes**: what a log cannot say or says wrongly stands in `session.notes` and in the session frame, in sentences.
- **Sources**: `recorded` stands in the log, `derived` follows from recorded numbers, `estimated` is neither. The column
  `source` says so for the token columns of a row; a figure that can have another source has a column of its own.
- **Within noise**: dollars of two settings or sessions that differ by less than the noise floor (21 % over 50 tasks,
  more over fewer) are no difference; [scores.md](scores.md) says how `ck.compare` decides it.
- **Dollars**: `cost_usd` of a session is that of its calls (`calls_usd`) and of the summaries of its compactions
  (`summaries_usd`), without subagents, here as in `ck.score`, `ck.compare`, `ck.board` and `ctxkit list`. The rows of
  the call frame or of the turn frame add up to `calls_usd`, those of the compaction frame to `summaries_usd`. With
  subagents it is `ck.spend(session).total_usd` and `with_subagents_usd` of `ctxkit list`. A replay is billed by the
  cache of its record: its cached tokens and dollars are those of `ck.compare`.
- **Counting**: messages and compactions are counted by `count=`: by default a quarter of the characters (an image
  weighs 1,200 tokens), `"exact"` for the tokenizer, `"anchored"` for sizes scaled to the recorded usage, the name of an
  estimate (`"pi"`, `"fuseraft"`, ...), or a counter of your own. Calls, turns and sessions hold what the log recorded.
- **Numbers** count from 0: calls, turns, compactions, positions.
- **Negative savings** are real: a summary can be larger than what it replaced.
- **Texts** are in no frame: the text of a message row is `session.path[position].text`, and `ck.find(path, "words")`
  searches the texts of a file or folder (its column `position` is the same).
- **Merging**: frames share more names than their keys, so name the other frame's columns:
  `calls.merge(sessions, on="session", suffixes=("", "_of_session"))`.
"""
_DESCRIPTIONS = {
    "message": (
        "One row a message that stands, each tool result one of its own; summaries that a"
        " compaction put in are in the compaction frame. Blobs of hidden reasoning are in no size."
        " What the program noted beside the talk (a retry, a reply that it made up) has the role"
        " system and is not visible; a conversation's beginning that is not in the file stands as"
        " rows of kind `lost`, which have a size and no text. A sidechain that nothing started"
        " counts as the conversation. What a program printed (aider's `>` lines) counts as the"
        " user's where an answer follows at once, for then it was sent."
    ),
    "call": (
        "One row a request to a model and its reply, failed ones included; what is written over"
        " several lines is one call, retries are none; where ids are all one word, a call ends"
        " where another line follows. `prompt_tokens = input_tokens + cache_read_tokens +"
        " cache_write_tokens`; a prompt of no tokens is missing with its parts, and so is a usage"
        " that is all zeros. Where a log holds the first piece"
        " of a stream alone, the output is estimated from what the next prompt grew by and from the"
        " text, and its cost with it. A price of $0 is no price."
    ),
    "turn": (
        "One row a turn of an agent, with the columns of fuseraft's snapshots under their own"
        " names. `live.turns`, the log of snapshots and the frame of the record agree: the log"
        " holds the columns up to `compaction_occurred` (its `source` is recorded), and no line for"
        " a turn that was billed no input. The replay of a live session's record under its rules"
        " with `last_usage=True` has every column the same, with the provider's bills, and compacts"
        " where it compacted. What it cannot do again: what was compacted by hand or forced by an"
        " overflow, and the words of a model that wrote a summary; from there on its figures are"
        " its own. A replay without `last_usage` models all prompts. After a branch or a restore"
        " all hold the turns that stand: lines of turns that were left are taken out of the log of"
        " snapshots, the session's own log keeps them. Running sums are kept for each agent, names"
        " without regard to case, and start again for all of them after a compaction. One rule for"
        " a compaction within a turn: it counts as one before that turn, as its mark stands in the"
        " log before the line that is written at the turn's end. The turn before it has"
        " `compaction_occurred`, and the running sum begins with the whole of the turn it fired in;"
        " one after the last call of a turn counts as one after that turn."
    ),
    "compaction": (
        "One row a compaction. Sizes are those that the log records, such as the prompt of the call"
        " that wrote the summary; else the size before is the"
        " last recorded prompt and its reply, or the counted messages where these are more (what"
        " came since is in them), and the size after is the next recorded prompt less"
        " what came in between, or the size before less the counted difference; without any usage"
        " both are counted. A row of kind `unmarked` is a fall of the recorded prompt by more than"
        " a twentieth and 1,024 tokens, by the same agent and model and not back with the next"
        " call, that no mark in the log explains; its sizes are the two prompts. A summary that the"
        " log does not price is estimated as a replay's is billed: what was summarised as fresh"
        " input, the summary as output. In a replay the output is what a model would write of it:"
        " evidence, intents and other texts worked out from the record cost nothing."
    ),
    "session": (
        "One row a session: what it is, what its log can say, its totals, what the reader passed"
        " over. A tool result reports failure by the log's own mark; Codex, mini-SWE-agent and"
        " OpenHands have none for commands, where an exit code other than 0 tells it. Sessions that"
        " share an id get different ids: the second is `id (2)`."
    ),
}


def render_page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(
        f'\n## per="{per}"\n\n{_DESCRIPTIONS[per]}\n\n{_render_columns(columns)}'
        for per, columns in FRAME_COLUMNS.items()
    )


def _render_columns(columns: tuple[FrameColumn, ...]) -> str:
    rows = [f"| `{c.name}` | {c.dtype} | {c.unit} | {c.meaning} |" for c in columns]
    return (
        "\n".join(["| column | dtype | unit | meaning |", "| --- | --- | --- | --- |", *rows])
        + "\n"
    )


if __name__ == "__main__":
    Path(__file__).with_name("frames.md").write_text(render_page(), encoding="utf-8")
