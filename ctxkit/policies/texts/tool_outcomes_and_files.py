"""Actions in a record: tool calls with targets and outcomes, files, commands, failures."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ctxkit.policies.history.growing_columns_and_sums import ASSISTANT
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.session.messages import Thinking, get_plain_text
from ctxkit.session.tool_call_paths_and_descriptions import (
    is_read_tool,
    is_write_tool,
    map_results_by_call,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.session.messages import Message

T = TypeVar("T")

Outcome = Literal["done", "failed", "pending", "unknown"]
OUTCOME_MARKS: dict[Outcome, str] = {"done": "✓", "failed": "✗", "pending": "⧖", "unknown": "?"}

SHELL_TOOL_PATTERN = re.compile(
    r"bash|shell|terminal|exec|run_command|local_shell|^run$|^python$", re.IGNORECASE
)
SEARCH_TOOL_PATTERN = re.compile(r"grep|glob|search|find|list_|^ls$", re.IGNORECASE)
EXIT_STATUS_PATTERN = re.compile(
    r"exit(?:ed with)?[ _]?(?:code|status)?[:= ]+(-?\d+)", re.IGNORECASE
)


class ToolCallOutcome(NamedTuple):
    """A tool call and its outcome."""

    tool: str
    target: str
    path: str
    outcome: Outcome
    output: str
    turn: int
    agent: str
    row: int

    @property
    def exit(self) -> int | None:
        """The exit status in the output; None: there is none."""
        return find_exit_status(self.output)


def find_exit_status(output: str) -> int | None:
    """Return the exit status in the last 400, else in the first 200 characters of an output."""
    hit = EXIT_STATUS_PATTERN.search(output[-400:]) or EXIT_STATUS_PATTERN.search(output[:200])
    return int(hit.group(1)) if hit else None


def collect_actions(
    messages: Sequence[Message], turns: Sequence[int] | None = None, agent: str = "main"
) -> list[ToolCallOutcome]:
    """Return the tool calls of messages in order, with their outcomes.

    Args:
        messages: messages in order.
        turns: number of the turn of each message; None: the messages' own.
        agent: name of the agent for messages that name none.
    """
    results = map_results_by_call(messages)
    actions: list[ToolCallOutcome] = []
    for row, m in enumerate(messages):
        for call in m.tool_calls:
            result = results.get(id(call))
            turn = turns[row] if turns is not None else m.turn or 0
            output = "" if result is None else get_plain_text(result)
            actions.append(
                ToolCallOutcome(
                    call.name,
                    message_content_and_truncation.get_call_target(call),
                    message_content_and_truncation.get_path_argument(call),
                    get_outcome(result),
                    output,
                    turn,
                    m.agent or agent,
                    row,
                )
            )
    return actions


def collect_actions_before(history: History, before: int) -> list[ToolCallOutcome]:
    """Return the tool calls of the log up to a position, compacted or not, with their outcomes.

    Results after the position do not count. Actions are cached per reply and number of results.

    Args:
        history: the messages of the prompt, and the log behind them.
        before: one past the last position that counts.
    """
    log = history.log
    # A row is -1 for a message that replaced others: the next message has the position.
    rows = (history.row(p) for p in range(before, len(history)))
    end = next((row for row in rows if row >= 0), history.hi)
    cache: dict[tuple[int, int], list[ToolCallOutcome]] = log.memo.setdefault("actions", {})
    actions: list[ToolCallOutcome] = []
    # A reply's actions depend only on its results so far: their number is part of the key.
    for row in log.of_role[ASSISTANT]:
        if row >= end:
            break
        reply = log.messages[row]
        if not reply.tool_calls:
            continue
        result_rows = [r for r in log.results.get(row, ()) if r < end]
        key = row, len(result_rows)
        if key not in cache:
            messages = [reply, *(log.messages[r] for r in result_rows)]
            cache[key] = collect_actions(messages, [log.turns[row]] * len(messages), log.agent)
        actions += cache[key]
    return actions


def is_failed_result(result: Message) -> bool:
    """Return True where a result reports a failure: by its flag, or a non-zero exit status."""
    return get_outcome(result) == "failed"


def get_outcome(result: Message | None) -> Outcome:
    """Return the outcome of a tool call by its result's flag and exit status.

    It is `pending` without a result, and `unknown` where the format has no flag of failure and the
    result no exit status.

    Args:
        result: the result of the call; None: there is none yet.

    Returns:
        `done`, `failed`, `pending` or `unknown`.
    """
    if result is None:
        return "pending"
    if result.is_error:
        return "failed"
    hit = None
    if is_shell_tool(result.tool or ""):
        end = get_plain_text(result)[-200:]
        if not end.isascii() or "exit" in end.lower():
            hit = EXIT_STATUS_PATTERN.search(end)
    if hit is not None:
        return "done" if hit.group(1) == "0" else "failed"
    return "unknown" if result.is_error is None else "done"


@lru_cache(1 << 10)
def is_shell_tool(name: str) -> bool:
    """Return True where a tool of this name runs commands."""
    return SHELL_TOOL_PATTERN.search(name) is not None


def format_intent_line(action: ToolCallOutcome, *, quirks: bool = False) -> str:
    """Return the line of an action in an intent record.

    By fuseraft's document the error is before the parenthesis, and commands are written. Its
    program (`quirks`) puts the error last, and writes paths only.

    Args:
        action: a tool call with its outcome.
        quirks: write as the program does, not as its document says.
    """
    name = action.path if quirks else action.target
    what = f' → "{message_content_and_truncation.format_one_line(name, 120)}"' if name else ""
    where = f"(turn {action.turn + 1}, {action.agent})"
    error = (
        f" — {message_content_and_truncation.format_one_line(action.output, 120)}"
        if action.outcome == "failed" and action.output
        else ""
    )
    tail = f" {where}{error}" if quirks else f"{error} {where}"
    return f"  {OUTCOME_MARKS[action.outcome]} {action.tool}{what}{tail}"


def list_written_files(
    actions: Iterable[ToolCallOutcome], outcome: Outcome = "done"
) -> tuple[str, ...]:
    """Return the paths of the writes and patches with an outcome, each once.

    Args:
        actions: tool calls with their outcomes.
        outcome: the outcome that counts.
    """
    return tuple(
        dict.fromkeys(
            a.path for a in actions if a.path and is_write_tool(a.tool) and a.outcome == outcome
        )
    )


def select_shell_commands(actions: Iterable[ToolCallOutcome]) -> list[ToolCallOutcome]:
    """Return the shell commands among the actions."""
    return [a for a in actions if is_shell_tool(a.tool)]


def select_unresolved_failures(actions: Sequence[ToolCallOutcome]) -> list[ToolCallOutcome]:
    """Return the failures without a later success of the same tool on the same target."""
    last: dict[tuple[str, str], ToolCallOutcome] = {}
    for a in actions:
        if a.outcome not in ("pending", "unknown"):
            last[a.tool, a.target] = a
    return [a for a in last.values() if a.outcome == "failed"]


def format_reasoning_block(
    messages: Sequence[Message], turns: Sequence[int], agent: str = "main", limit: int = 2000
) -> str:
    """Return fuseraft's block of reasoning excerpts; empty without reasoning.

    Args:
        messages: messages in order.
        turns: number of the turn of each message.
        agent: name of the agent for messages that name none.
        limit: characters of each excerpt.
    """
    rows = []
    for m, turn in zip(messages, turns, strict=True):
        text = "\n".join(p.text for p in m.parts if isinstance(p, Thinking) and p.text)
        if text:
            cut = message_content_and_truncation.truncate_end(
                text, limit, f" [TRUNCATED — {len(text):,} chars total]"
            )
            rows.append(f"Turn {turn + 1} ({m.agent or agent}): {cut}")
    return (
        "\n".join(["[REASONING EXCERPTS — model thinking for compacted turns]", *rows])
        if rows
        else ""
    )


def format_exploration_block(actions: Sequence[ToolCallOutcome]) -> str:
    """Return fuseraft's block of files read and searches; empty without any."""
    read = [a.path for a in actions if a.path and is_read_tool(a.tool)]
    searches = [
        a
        for a in actions
        if SEARCH_TOOL_PATTERN.search(a.tool)
        or (is_shell_tool(a.tool) and SEARCH_TOOL_PATTERN.search(a.target[:40]))
    ]
    if not read and not searches:
        return ""
    rows = ["[EXPLORATION HISTORY — investigation performed before compaction]"]
    if read:
        rows.append(f"Files read: {len(set(read))} ({len(read)} reads)")
    rows += [
        f"  {a.tool}: {message_content_and_truncation.format_one_line(a.target, 120)}"
        for a in searches
        if a.target
    ]
    frequent = [p for p in dict.fromkeys(read) if read.count(p) >= 3]
    return "\n".join([*rows, *(f"  read {read.count(p)} times: {p}" for p in frequent)])


def format_symbols_block(
    actions: Sequence[ToolCallOutcome], texts: Iterable[tuple[str, str]]
) -> str:
    """Return fuseraft's block of symbols that written texts define and use; empty without any.

    Args:
        actions: the actions.
        texts: pairs (path, text) of written texts; an empty path is unknown.
    """
    written_texts = list(texts)
    names: dict[str, tuple[str, str]] = {}
    for path, text in written_texts:
        for kind, name in find_definitions(text):
            names.setdefault(name, (kind, path))
    if not names:
        return ""
    references = [
        (name, names[name][1])
        for path, text in written_texts
        for name in find_used_names(text)
        if path and name in names and names[name][1]
    ]
    rows = [f"  SymbolDefinition ({kind}): {name}" for name, (kind, _) in names.items()]
    rows += [f"  SymbolReference: {name} → {target}" for name, target in dict.fromkeys(references)]
    files = len(list_written_files(actions))
    return "\n".join(
        [f"[SYMBOL DEPENDENCY GRAPH — {len(rows)} node(s) across {files} file(s)]", *rows]
    )


def find_definitions(text: str) -> list[tuple[str, str]]:
    """Return (kind, name) of the functions, classes and similar that a text defines."""
    return _SYMBOL.findall(text)


def find_used_names(text: str) -> list[str]:
    """Return the words of a text that occur more often than it defines them, in order."""
    words = Counter(_WORD.findall(text))
    words.subtract(name for _, name in find_definitions(text))
    return [word for word, n in words.items() if n > 0]


_WORD = re.compile(r"[A-Za-z_]\w{0,80}")


_SYMBOL = re.compile(
    r"^[ \t]{0,40}(?:export |public |private |async |static"
    r" ){0,3}(def|class|function|func|fn|struct|interface|enum)"
    r"[ \t]{1,4}([A-Za-z_]\w{0,80})",
    re.MULTILINE,
)


class ToolCallPaths(NamedTuple):
    """Paths in the tool calls of a message."""

    read: frozenset[str]
    changed: frozenset[str]


def format_file_lists(file_paths: Iterable[ToolCallPaths]) -> str:
    """Return Pi's sorted lists of read and changed files; a changed file is only in the second."""
    file_paths = list(file_paths)
    changed = frozenset[str]().union(*[f.changed for f in file_paths])
    read = frozenset[str]().union(*[f.read for f in file_paths]) - changed
    out = ""
    for tag, names in (("read-files", read), ("modified-files", changed)):
        if names:
            out += f"\n\n<{tag}>\n" + "\n".join(sorted(names)) + f"\n</{tag}>"
    return out


def get_files_in_message(message: Message) -> ToolCallPaths | None:
    """Return the files that a message reads and changes; None: it has none."""
    named = [(c.name, path) for c in message.tool_calls if (path := _argument_path(c.arguments))]
    read = frozenset([path for name, path in named if is_read_tool(name)])
    changed = frozenset([path for name, path in named if is_write_tool(name)])
    return ToolCallPaths(read, changed) if read or changed else None


def map_messages(
    history: History, places: NDArray[Any], make: Callable[[Message], T | None]
) -> list[T]:
    """Return `make` of the messages at some sorted positions, where it is not None.

    Results for messages of the log are cached in the log.

    Args:
        history: the messages of the prompt.
        places: sorted positions.
        make: makes a value from a message; None: none. It must depend on the message only.
    """
    head, log = history.head, history.log
    edited = int(places.searchsorted(head.size))
    out = [value for p in places[:edited].tolist() if (value := make(history[p])) is not None]
    rows = (places[edited:] + (history.lo - head.size)).tolist()
    if not rows:
        return out
    done_rows, cache = log.memo.setdefault(("of each", make), ([0], dict[int, T]()))
    for row in range(done_rows[0], rows[-1] + 1):
        if (value := make(log.messages[row])) is not None:
            cache[row] = value
    done_rows[0] = max(done_rows[0], rows[-1] + 1)
    first, included = rows[0], set(rows)
    return out + [value for row, value in cache.items() if row >= first and row in included]


def _argument_path(arguments: dict[str, Any]) -> str:
    path = arguments.get("path") or arguments.get("file_path")
    return path if isinstance(path, str) else ""
