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

Written by `python docs/make_formats.py` from the readers. A format is detected from its content, never from the file
name; `format=` overrides detection. Values that a log does not record are missing (`None`, `NaN`), never zero.

| `format=` | reader | recorded | not recorded |
| --- | --- | --- | --- |
"""
RULES = """
## How formats become sessions

- **One call, one reply.** A call that is written in several lines, or twice, is one assistant message. Retries and
  replies that a program made up are events (role `system`, sent to no model). Tool results are messages of their own,
  even if the format stores call and result in one record (Gemini, OpenCode, ATIF).
- **Usage in disjoint classes.** `input_tokens` excludes cached tokens. Where a format includes them (Codex, Gemini,
  ATIF, Chat Completions, mini-SWE-agent, OpenTelemetry), they are subtracted; the prompt is the sum of the classes.
- **Whole turns.** If a record covers a turn of several calls (fuseraft's checkpoints, post-mortems and snapshots), the
  message has `kind="turn"`: its usage is what was billed, not the size of a context.
- **Compactions.** A recorded compaction is an edit with the removed messages and the inserted summary. Traces with the
  whole prompt of each call (Langfuse, OpenTelemetry, Inspect, completion logs) give edits with `source="derived"` where
  the next prompt lacks messages. Prompt drops without a mark are rows of kind `unmarked`;
  `ctxkit.metrics.compaction_sizes_and_detection.infer_compactions` finds large ones by other rules.
- **Several sessions in a file** (tau-bench runs, OpenHands outputs, Inspect samples, aider's starts, fuseraft's older
  event logs) are read with `ck.read_all`. **A folder that is one session** (OpenHands' events or completion logs,
  fuseraft's session folder and post-mortem) gives one session. OpenCode's storage gives its main sessions.
- **Raw bodies.** A folder of request and response bodies (Claude Code writes one with
  `OTEL_LOG_RAW_API_BODIES=file:DIR`) gives one session per session id. Each prompt is complete, with system prompt and
  tool schemas; each memory file, reminder, file or pasted `/context` is a message of its own (kind `injected` or
  `wrapper`). Subagents and side calls are children, identified by the messages that their requests repeat; the call
  that wrote a summary is the usage of its compaction. A transcript of the same session, in the folder or read with it
  (`ck.read_all([bodies, transcripts])`), is joined by the ids of tool calls and by texts: it adds times, kinds,
  compactions, events, the title, and the usage of calls without a response file. A missing, duplicate or incomplete
  file, and a call that only one side has, is a fault. Nothing is "not in the log", unless the bill is more than twice
  the count, which no tokenizer explains.
- **Requests in transcripts.** Claude Code (seen: 2.1.332) writes the system prompt and tool schemas of its requests
  (`api-request-shape`) and the sent text of each attachment (`rendered`) into the transcript, so nothing of such a
  transcript is "not in the log" either.
- **Packing and size.** A log may be compressed with gzip or zstd, or be the only file in a zip; it may be UTF-8 or
  UTF-16, with or without a byte-order mark, with any line ends and any name. A Codex rollout above 64 MB is read line
  by line, so memory grows with its distinct content: 2.05 GB, whose 347 compactions each repeat twelve images, took
  65 MB and 9 s of one core. A compressed one is streamed as well, up to a ratio of 400. A second core does not help:
  150 MB of plain messages are read in 1.0 s, and moving them between processes takes 0.8 s. A JSON list of a log's
  lines is read as that log; a list of documents, or one per line, as that many sessions.
- **Reverted turns** (Codex, Gemini, OpenCode, rewinds of Claude Code, Pi's branches) stay in the log as an abandoned
  branch.
- **Subagents** are in `Session.children` if the log identifies them: Claude Code's files, ATIF's embedded
  trajectories, fuseraft's sub-agent events, OpenCode's storage, separate threads in a trace. Exports of one session
  name only their parent.
- **Calls that the provider runs** (`web_search_call` and `image_generation_call` of Codex) have one result of kind
  `server`, so that every call has a result. Codex logs no text of a search: that result has no parts and no tokens. To
  count results that the log contains, leave out those without parts.
- **API errors as replies** (Claude Code's `isApiErrorMessage` of the model `<synthetic>`, its `api_error` lines) are
  events (`events_n`), never calls: neither `calls_n` nor `failed_calls_n` includes them. A failed call is one that the
  log records as a call: an interrupted reply, or one marked as failed (`error` and `turn_aborted` of Codex).
- **Messages of agents** (Codex' `agent_message` items) are inputs of role `user` and kind `agent`. Another agent wrote
  them into the thread, so they are in the prompt and begin a turn like a user's message; only the kind differs.
- **Compactions by the provider** (`compaction` blocks and items of Anthropic and OpenAI) are edits of method
  `compaction`, with the usage of the summary's own call if the log has it (`usage.iterations`,
  `response.compaction`); dropped messages are no longer visible. An encrypted summary has no size. Tool results that
  Anthropic's context editing cleared are replaced from the call whose response reports it.
- **Text actions** (SWE-agent) are tool calls with the action as `command`; its demonstrations are part of the prompt,
  not calls. aider's answers have no calls, and aider rounds its usage.
- **Times without a zone** are read as UTC; those of OpenHands are corrected by the times of its completions.
- **Damage.** An unreadable record is a fault with its line, an unknown one is counted by name in `skipped`, and all
  others are read. Invalid UTF-8 is replaced and reported. A truncated compressed log is read as far as it is intact.
  Archives (`.eval`) are refused before unpacking if they have too many members, unpack to more than 512 MB, or have a
  member with a ratio above 400.

## Known errors of logs

`formats/zero_usage_and_lost_start_repairs.py` checks every session that is read. It repairs what it can and describes the rest in
`session.notes`, which reports, comparisons and charts of the session show.

- **A prompt of 0 tokens or a price of $0** means that the call failed or that the program knows no price: missing.
- **The context window** of the price table is not used if a prompt was larger, or if the program compacted
  automatically at less than half of it; a window in the log is taken as it is. For a session without an automatic
  compaction, those of sessions read with it (`ck.read_all`) count if tool, version and model are the same, unless one
  of them had a larger prompt. A tool's default (Claude Code's 200,000 for Opus 4.6) is not the model's maximum. The
  note names the evidence.
- **A prompt drop** (more than 5 % and 1,024 tokens, same agent and model, not restored by the next call) that no
  compaction explains is a row of kind `unmarked` in the compaction frame.
- **Summaries without a recorded price** are billed as in a replay: the summarised messages as uncached input, the
  summary as output.
- **A missing beginning** becomes messages of kind `lost` (sizes without text), which the first compaction removes. A
  preset that keeps everything before the first user message (`inspect_trim`) keeps them.
- **No mark**: if a format does not mark compactions or failed tools, their number is missing unless one is seen.

| format | versions | note |
| --- | --- | --- |
"""
LOCATIONS_HEAD = """
## Where `ck.discover()` looks

| tool | below the home folder | variable that moves it |
| --- | --- | --- |
"""
LOCATIONS_END = """
Not searched: **MLflow**'s traces, which its tracking server stores (a database or file store that only the server's
settings locate): write them to a file with `Trace.to_json()`, one per line, and read that. **Notebooks** can be
anywhere: `ck.read_all("folder/")` finds those with `%%agent` cells; the sessions of such cells are in
`.ctxkit/sessions`, which is searched. What a closed tool stores is not read.
"""


def format_page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD]
    for module_name in READER_MODULES:
        reader = import_module(f"ctxkit.formats.{module_name}")
        names = " ".join(f"`{name}`" for name in (reader.NAME, *getattr(reader, "ALIASES", ())))
        description = " ".join((reader.__doc__ or "").split("\n\n")[0].split()).rstrip(".")
        parts.append(f"| {names} | {description} | {reader.CAN} | {reader.CANNOT} |\n")
    parts.append(RULES)
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
    return "".join([*parts, LOCATIONS_END])


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != format_page())
    PAGE.write_text(format_page(), encoding="utf-8")
