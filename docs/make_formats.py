"""Write `docs/formats.md` from the readers themselves: `python docs/make_formats.py` (a test
compares the page).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from ctxkit.formats.discovery import LOG_LOCATIONS
from ctxkit.formats.registry import READER_MODULES

PAGE = Path(__file__).with_name("formats.md")
HEAD = """# Formats

Written by `python docs/make_formats.py` from the readers. A format is known by its content, never by the name of the
file; `format=` forces one. What a log cannot say is missing (`None`, `NaN`), never zero.

| `format=` | what it is | what it says | what it cannot say |
| --- | --- | --- | --- |
"""
RULES = """
## How formats become sessions

- **One call, one reply.** A call written in several lines, whatever lies between them, or twice, is one assistant
  message; retries and replies that a program made up are events (role `system`, shown to no model). Tool results are
  messages of their own, also where the format keeps call and result in one record (Gemini, OpenCode, ATIF).
- **Usage in disjoint classes.** `input_tokens` is what was not cached. Where a format's input holds the cached
  tokens (Codex, Gemini, ATIF, Chat Completions, mini-SWE-agent, OpenTelemetry), they are taken out; the prompt is
  the sum again.
- **Whole turns.** Where a record stands for a turn of several calls (fuseraft's checkpoints, post-mortems and
  snapshots), the message has `kind="turn"`: its usage is a bill, not the size of a context.
- **Compactions.** A recorded one is an edit with the messages that went and the summary that came. Traces that hold
  each call's whole prompt (Langfuse, OpenTelemetry, Inspect, completion logs) give edits with `source="derived"`
  where messages are gone from the next prompt. Falls that nothing marks are events of kind `unmarked`;
  `ctxkit.metrics.recorded_compactions.infer_compactions` finds large ones by rules of others.
- **Several sessions in a file** give several (tau-bench runs, OpenHands outputs, Inspect samples, aider's starts,
  fuseraft's older event logs): `ck.read_all`. **A folder that is one session** gives one: OpenHands' events or
  completion logs, fuseraft's session folder and post-mortem. OpenCode's storage gives its main sessions.
- **Raw bodies.** A folder of request and response bodies (Claude Code writes one with
  `OTEL_LOG_RAW_API_BODIES=file:DIR`) is a session for each session id: each prompt is whole, with system prompt and
  tool schemas, and each memory file, reminder, file or pasted `/context` is a message of its own (kind `injected` or
  `wrapper`). Subagents and side calls are children, told apart by what they repeat; the call that wrote a summary is
  the usage of its compaction. A transcript of the same session, in the folder or read with it
  (`ck.read_all([bodies, transcripts])`), is joined by the ids of tool calls and by texts: it gives times, kinds,
  compactions, events and title, and the usage of a call whose response was lost. A missing, doubled or half-written
  file, and a call that only one of the two has, is a fault; the rest is joined. Nothing is "not in the log", unless
  the bill is more than twice what counting gives, which no tokenizer explains.
- **Requests in transcripts.** Claude Code (seen: 2.1.332) writes system prompt and tool schemas of its requests
  (`api-request-shape`) and the text of each attachment as it was sent (`rendered`) into the transcript itself; of such
  a transcript, too, nothing is "not in the log".
- **Shapes.** Any log may be packed with gzip or zstd, or lie alone in a zip, in UTF-8 or UTF-16, with or without a
  mark, with any line ends, and under any name. A rollout of Codex above 64 MB is read line by line, so that a log of
  gigabytes takes the memory of what it says once: one of 2.05 GB, whose 347 compactions each repeat twelve images,
  took 65 MB and 9 s of one core; a packed one is streamed as well, as long as it grows no more than 400 times. A second
  core does not help: 150 MB of plain messages are read in 1.0 s, and to hand them from one process to another takes
  0.8 s. A list of a log's lines is that log; a list of documents, or one a line, is as many sessions.
- **Turns taken back** (Codex, Gemini, OpenCode, rewinds of Claude Code, Pi's branches) stay in the log, as a branch
  that was left.
- **Subagents** are `Session.children` where they can be told: Claude Code's files, ATIF's embedded trajectories,
  fuseraft's sub-agent events, OpenCode's storage, threads of their own in a trace. Exports of one session name only
  their parent.
- **Calls that the provider runs** (Codex' `web_search_call` and `image_generation_call`) have one result of kind
  `server`, so that no call stands alone. Codex logs no text of a search: that result has no parts and no tokens, and
  is in no sum of tokens; whoever counts results that the log holds leaves out those without parts.
- **API errors as replies** (Claude Code's `isApiErrorMessage` of the model `<synthetic>`, its `api_error` lines) are
  events (`events_n`), never calls: they are in neither `calls_n` nor `failed_calls_n`. A failed call is one that the
  log has as a call: a reply that broke off or was marked as failed (Codex' `error` and `turn_aborted`).
- **Messages of agents** (Codex' `agent_message` items) are inputs of role `user` and kind `agent`: another agent wrote
  them into the thread, so they are in the prompt and begin a turn as a user's message does, and the kind tells them
  from what a person wrote.
- **Compactions by the provider** (`compaction` blocks and items of Anthropic and OpenAI) are edits of method
  `compaction` with the usage of the summary's own call, where the log has it (`usage.iterations`,
  `response.compaction`); what the API dropped is no longer shown. A sealed summary has no size. Tool results that
  Anthropic's context editing cleared are replaced from the call on whose response says so.
- **Text actions** (SWE-agent) are tool calls with the action as `command`; its demonstrations are part of the
  prompt, not calls. aider's answers have no calls; its usage is rounded by aider itself.
- **Times without a zone** are taken for UTC; OpenHands' are set by the completions beside them, where there are
  any.
- **Damage.** A record that cannot be read is a fault with its line, an unknown one is counted by name in `skipped`,
  and the rest is kept; bytes that are no UTF-8 are replaced, and told. A packed log is read as far as it is whole.
  Archives (`.eval`) are refused before unpacking where they have too many members, grow beyond 512 MB, or one grows
  more than 400 times.

## What logs say wrongly

Every session that is read passes one place (`formats/recording_repairs.py`), which mends what can be told and says the rest in
`session.notes`, in sentences; reports, comparisons and charts that rest on the session show them.

- **A prompt of no tokens, a price of nothing** say that a call failed, or that the program knows no price: missing.
- **A window** of the price table is not used where a prompt was larger, or the program compacted by itself at less than
  half of it; what the log says of its window is taken as it is. Of sessions that are read together (`ck.read_all`) one
  that never compacted is measured by the automatic compactions of those with the same tool, version and model, unless
  one of them had a larger prompt; a default of the tool (Claude Code's 200,000 for Opus 4.6) is not the model's
  maximum. The note names the evidence.
- **A fall of the prompt** (more than a twentieth and 1,024 tokens, same agent and model, not back with the next call)
  that no compaction explains is a row of the compaction frame of kind `unmarked`.
- **Summaries** that no log prices are estimated as a replay's are billed: what was summarised as fresh input, the
  summary as output.
- **A lost head** stands as messages of kind `lost` (sizes, no text) that the first compaction takes. A preset that
  keeps all before the first user message (`inspect_trim`) keeps them.
- **No mark**: where a format has none for compactions or failed tools, their number is missing unless one is seen.

| format | versions | what holds |
| --- | --- | --- |
"""
PLACES_HEAD = """
## Where `ck.discover()` looks

| tool | below the home folder | moved by |
| --- | --- | --- |
"""
PLACES_END = """
Not looked for: **MLflow**'s traces, which lie with its tracking server (a database or a store of files whose place only
the server's settings tell): write them to a file with `Trace.to_json()`, one a line, and read that. **Notebooks**,
which lie anywhere: `ck.read_all("folder/")` finds those with `%%agent` cells; the sessions of such cells lie in
`.ctxkit/sessions` all the same, which is looked at. What a closed tool keeps is left alone.
"""


def page() -> str:
    """Return the page."""
    out = [HEAD]
    for member in READER_MODULES:
        m = import_module(f"ctxkit.formats.{member}")
        names = " ".join(f"`{n}`" for n in (m.NAME, *getattr(m, "ALIASES", ())))
        what = " ".join((m.__doc__ or "").split("\n\n")[0].split()).rstrip(".")
        out.append(f"| {names} | {what} | {m.CAN} | {m.CANNOT} |\n")
    out.append(RULES)
    for member in READER_MODULES:
        m = import_module(f"ctxkit.formats.{member}")
        out += [
            f"| {m.NAME} | {versions} | {said} |\n" for versions, said in getattr(m, "TRAITS", ())
        ]
        if blind := getattr(m, "BLIND", ()):
            out.append(f"| {m.NAME} | all | no mark for {' and '.join(blind)} |\n")
    out.append(PLACES_HEAD)
    for p in LOG_LOCATIONS:
        place = f"`~/{p.below}`" if p.below else "`~` itself, and the working folder"
        in_variable = f"`{p.variable}` (then `{p.below_variable}` below it)" if p.variable else ""
        out.append(f"| {p.tool} | {place} | {in_variable} |\n")
    return "".join([*out, PLACES_END])


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
