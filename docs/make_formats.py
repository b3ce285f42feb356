"""Write `docs/formats.md` from the readers: `python docs/make_formats.py`.

A test compares the page.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from ctxkit.formats.log_discovery import LOG_LOCATIONS
from ctxkit.formats.registry import READER_MODULES

PAGE = Path(__file__).with_name("formats.md")
HEAD = """# Formats

```python
import ctxkit as ck
session = ck.read(ck.samples.path("billing"))
session.format, session.faults, session.skipped, session.notes
```

A format is detected from the content of a file, never from its name; `format=` overrides detection. A value that a log
does not record is missing (`None`, `NaN`), never zero. `python docs/make_formats.py` writes this page from the readers.

Every session is checked for known errors of logs. Those that can be repaired are repaired; the rest are described in
`session.notes`, which reports, comparisons and charts show.

| `format=` | reader | recorded | not recorded |
| --- | --- | --- | --- |
"""
SESSIONS_HEAD = """
## How formats become sessions

| in the log | in the session | formats |
| --- | --- | --- |
"""
SESSION_ROWS = (
    ("a call in several lines, or written twice", "one assistant message", "all"),
    (
        "retries, and replies that a program made up",
        "events (role `system`, sent to no model)",
        "all",
    ),
    (
        "API errors as replies",
        "events (`events_n`), in neither `calls_n` nor `failed_calls_n`",
        "Claude Code (`isApiErrorMessage` of the model `<synthetic>`, `api_error` lines)",
    ),
    (
        "failed calls",
        "calls that the log records: interrupted replies, or those marked as failed",
        "all; Codex marks them with `error` and `turn_aborted`",
    ),
    (
        "tool results",
        "messages of their own, also where one record has call and result",
        "all; in one record in Gemini, OpenCode, ATIF",
    ),
    (
        "calls that the provider runs",
        "one result of kind `server`; if the log has no text of it (a search), without parts and tokens: leave it out to count logged results",
        "Codex (`web_search_call`, `image_generation_call`)",
    ),
    (
        "messages of agents",
        "inputs of role `user` and kind `agent`: in the prompt, and the beginning of a turn",
        "Codex (`agent_message`)",
    ),
    (
        "actions as text",
        "tool calls with the action as `command`; demonstrations are prompt, not calls",
        "SWE-agent",
    ),
    ("answers without calls", "replies; usage as rounded by the program", "aider"),
    (
        "reverted turns",
        "an abandoned branch of the log",
        "Codex, Gemini, OpenCode, rewinds of Claude Code, branches of Pi",
    ),
    (
        "subagents",
        "`Session.children`, if the log identifies them; exports of one session name only their parent",
        "files of Claude Code, trajectories inside ATIF, sub-agent events of fuseraft, storage of OpenCode, threads of a trace",
    ),
    (
        "input tokens that include cached ones",
        "`input_tokens` without the cached ones; a prompt is the sum of the disjoint classes",
        "Codex, Gemini, ATIF, Chat Completions, mini-SWE-agent, OpenTelemetry",
    ),
    (
        "one record for a turn of several calls",
        '`kind="turn"`, with what was billed as usage, not the size of a context',
        "checkpoints, post-mortems and snapshots of fuseraft",
    ),
    (
        "times without a zone",
        "UTC; in OpenHands corrected by the times of completions",
        "all",
    ),
    (
        "a compaction",
        "an edit with the removed messages and the inserted summary",
        "all that record compactions",
    ),
    (
        "the whole prompt of each call",
        'edits with `source="derived"` where the next prompt lacks messages',
        "Langfuse, OpenTelemetry, Inspect, completion logs",
    ),
    (
        "a prompt drop (more than 5 % and 1,024 tokens, same agent and model, not restored by the next call) without a compaction",
        "a row of kind `unmarked` in the compaction frame; for other rules see `ctxkit.metrics.compaction_sizes_and_detection.infer_compactions`",
        "all",
    ),
    (
        "compactions by the provider",
        (
            "edits of method `compaction`, with the usage of the summary's call if logged (`usage.iterations`, `response.compaction`); "
            "the dropped messages are not visible, an encrypted summary has no size"
        ),
        "blocks and items of type `compaction` of Anthropic and OpenAI",
    ),
    (
        "tool results cleared by the provider",
        "replaced from the call whose response reports it",
        "context editing of Anthropic",
    ),
    (
        "a folder of request and response bodies (`OTEL_LOG_RAW_API_BODIES=file:DIR`)",
        "one session per session id, each prompt with system prompt and tool schemas",
        "Claude Code",
    ),
    (
        "memory files, reminders, files and a pasted `/context` in a body",
        "messages of their own (kind `injected` or `wrapper`)",
        "Claude Code",
    ),
    (
        "bodies of subagents and side calls",
        "children, identified by the messages that their requests repeat; the call that wrote a summary is the usage of its compaction",
        "Claude Code",
    ),
    (
        "bodies and a transcript of one session, in one folder or in `ck.read_all([bodies, transcripts])`",
        (
            "one session, joined by the ids of tool calls and by texts; from the transcript: times, kinds, compactions, events, title, "
            "usage of calls without a response file"
        ),
        "Claude Code",
    ),
    (
        "a missing, duplicate or incomplete body, or a call on one side only",
        "a fault",
        "Claude Code",
    ),
    (
        "a whole prompt that is billed above its count",
        '"not in the log" only if the bill is above twice the count, which no tokenizer explains',
        "bodies; transcripts with `api-request-shape` and `rendered` (seen: Claude Code 2.1.332)",
    ),
)
FILES_HEAD = """
## Files and folders

| file or folder | how it is read |
| --- | --- |
"""
FILE_ROWS = (
    ("one session", "`ck.read`"),
    (
        "several sessions: runs of tau-bench, outputs of OpenHands, samples of Inspect, starts of aider, older event logs of fuseraft",
        "`ck.read_all`",
    ),
    (
        "a folder of events or completion logs (OpenHands), of a session or a post-mortem (fuseraft)",
        "one session",
    ),
    ("the storage of OpenCode", "its main sessions"),
    ("a JSON list of the lines of a log", "as that log"),
    ("a JSON list of documents, or one document per line", "one session each"),
    (
        "UTF-8 or UTF-16, any byte-order mark, line ends and name",
        "decoded; invalid UTF-8 is replaced and reported",
    ),
    (
        "gzip, zstd, or a zip with one file",
        "as a stream, up to a ratio of 400; a truncated one as far as it is intact",
    ),
    (
        "an archive (`.eval`)",
        "refused before unpacking with too many members, above 512 MB, or with a member above a ratio of 400",
    ),
    (
        "a Codex rollout above 64 MB",
        "line by line; memory grows with distinct content (2.05 GB with 347 compactions, each with the same twelve images: 65 MB, 9 s on one core)",
    ),
    ("an unreadable record", "a fault with its line; all other records are read"),
    ("an unknown record", "counted by name in `skipped`"),
)
ERRORS_HEAD = """
## Known errors of logs

| format | versions | note |
| --- | --- | --- |
"""
ERROR_ROWS = (
    "a prompt of 0 tokens or a price of $0 is missing: the call failed, or the program knows no price",
    (
        "the window of the price table is not used if a prompt was larger, or if the program compacted automatically at less than half of it; "
        "a window in the log is taken as it is"
    ),
    "the window of a session without an automatic compaction is judged by those of sessions read with it (`ck.read_all`), too: same tool, version and model, none with a larger prompt",
    "a tool's default window is not the model's maximum (Claude Code: 200,000 for Opus 4.6); the note names the evidence",
    "summaries without a recorded price are billed as in a replay: the summarised messages as uncached input, the summary as output",
    (
        "a missing beginning becomes messages of kind `lost` (sizes without text), which the first compaction removes; "
        "`inspect_trim` keeps them, as all before the first user message"
    ),
    "compactions or failed tools without a mark: their number is missing unless one is seen",
)
LOCATIONS_HEAD = """
## Where `ck.discover()` looks

| tool | below the home folder | variable that moves it |
| --- | --- | --- |
"""
NOT_SEARCHED = (
    (
        "mlflow",
        "not searched (only the settings of its tracking server say where): export with `Trace.to_json()`, one per line",
    ),
    (
        "notebook",
        'not searched (anywhere): `ck.read_all("folder/")` finds those with `%%agent` cells, whose sessions are in `.ctxkit/sessions`',
    ),
)
LOCATIONS_END = """
Logs of other tools, such as the stores of closed-source programs, are not read.
"""


def format_page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD]
    for module_name in READER_MODULES:
        reader = import_module(f"ctxkit.formats.{module_name}")
        names = ", ".join(f"`{name}`" for name in (reader.NAME, *getattr(reader, "ALIASES", ())))
        description = " ".join((reader.__doc__ or "").split("\n\n")[0].split()).rstrip(".")
        parts.append(f"| {names} | {description} | {reader.CAN} | {reader.CANNOT} |\n")
    parts.append(SESSIONS_HEAD)
    parts += [f"| {' | '.join(row)} |\n" for row in SESSION_ROWS]
    parts.append(FILES_HEAD)
    parts += [f"| {' | '.join(row)} |\n" for row in FILE_ROWS]
    parts.append(ERRORS_HEAD)
    parts += [f"| all | all | {note} |\n" for note in ERROR_ROWS]
    for module_name in READER_MODULES:
        reader = import_module(f"ctxkit.formats.{module_name}")
        parts += [
            f"| {reader.NAME} | {versions} | {note} |\n"
            for versions, note in getattr(reader, "TRAITS", ())
        ]
        if unmarked := getattr(reader, "BLIND", ()):
            parts.append(f"| {reader.NAME} | all | no mark for {' and '.join(unmarked)} |\n")
    parts.append(LOCATIONS_HEAD)
    for location in LOG_LOCATIONS:
        folder = f"`~/{location.below}`" if location.below else "`~` itself, and the working folder"
        variable = (
            f"`{location.variable}` (then `{location.below_variable}` below it)"
            if location.variable
            else ""
        )
        parts.append(f"| {location.tool} | {folder} | {variable} |\n")
    parts += [f"| {tool} | {reason} |  |\n" for tool, reason in NOT_SEARCHED]
    return "".join([*parts, LOCATIONS_END])


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != format_page())
    PAGE.write_text(format_page(), encoding="utf-8")
