"""What messages did, read off the record and not off what a model said: calls, outcomes, files,
commands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ctxkit.history.columns import ASSISTANT
from ctxkit.messages import Thinking
from ctxkit.subjects import results
from ctxkit.texts import contents, trims
from ctxkit.tools.tool_names import reads, writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.messages import Message

T = TypeVar("T")

Outcome = Literal["done", "failed", "pending"]
MARKS: dict[Outcome, str] = {"done": "✓", "failed": "✗", "pending": "⧖"}

SHELLS = re.compile(
    r"bash|shell|terminal|exec|run_command|local_shell|^run$|^python$", re.IGNORECASE
)
SEARCHES = re.compile(r"grep|glob|search|find|list_|^ls$", re.IGNORECASE)
EXIT = re.compile(r"exit(?:ed with)?[ _]?(?:code|status)?[:= ]+(-?\d+)", re.IGNORECASE)


class Action(NamedTuple):
    """One tool call as the record has it."""

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
        """The exit status that the output names, where it does."""
        hit = EXIT.search(self.output[-400:]) or EXIT.search(self.output[:200])
        return int(hit.group(1)) if hit else None


def actions(
    messages: Sequence[Message], turns: Sequence[int] | None = None, agent: str = "main"
) -> list[Action]:
    """Return the tool calls of messages in order, each with what became of it."""
    found = results(messages)
    out: list[Action] = []
    for row, m in enumerate(messages):
        for call in m.tool_calls:
            answer = found.get(id(call))
            outcome: Outcome = (
                "pending" if answer is None else "failed" if failed(answer) else "done"
            )
            turn = turns[row] if turns is not None else m.turn or 0
            output = "" if answer is None else contents.texts(answer)
            out.append(
                Action(
                    call.name,
                    contents.target(call),
                    contents.path(call),
                    outcome,
                    output,
                    turn,
                    m.agent or agent,
                    row,
                )
            )
    return out


def done_before(history: History, before: int) -> list[Action]:
    """Return the tool calls of the log up to a position, in order, with what became of each by
    then; those that an earlier compaction took out of sight are among them.
    """
    log = history.log
    rows = (history.row(p) for p in range(before, len(history)))
    end = next((row for row in rows if row >= 0), history.hi)
    known: dict[tuple[int, int], list[Action]] = log.memo.setdefault("actions", {})
    out: list[Action] = []
    for row in log.of_role[ASSISTANT]:
        if row >= end:
            break
        reply = log.messages[row]
        if not reply.tool_calls:
            continue
        mine = [r for r in log.results.get(row, ()) if r < end]
        key = row, len(mine)
        if key not in known:
            said = [reply, *(log.messages[r] for r in mine)]
            known[key] = actions(said, [log.turns[row]] * len(said), log.agent)
        out += known[key]
    return out


def failed(result: Message) -> bool:
    """Say whether a tool result reports failure: the flag of the log, or a non-zero exit status in
    its text.
    """
    if result.is_error:
        return True
    hit = EXIT.search(contents.texts(result)[-200:]) if SHELLS.search(result.tool or "") else None
    return hit is not None and hit.group(1) != "0"


def intent(action: Action, *, quirks: bool = False) -> str:
    """Return one line of an intent record.

    By fuseraft's document the error stands before the parenthesis and a command is shown; its
    program (`quirks`) puts the error last and shows paths only.
    """
    name = action.path if quirks else action.target
    what = f' → "{contents.one_line(name, 120)}"' if name else ""
    where = f"(turn {action.turn + 1}, {action.agent})"
    error = (
        f" — {contents.one_line(action.output, 120)}"
        if action.outcome == "failed" and action.output
        else ""
    )
    tail = f" {where}{error}" if quirks else f"{error} {where}"
    return f"  {MARKS[action.outcome]} {action.tool}{what}{tail}"


def files_written(acts: Iterable[Action]) -> tuple[str, ...]:
    """Return paths that were written or patched with success, each once."""
    return tuple(
        dict.fromkeys(a.path for a in acts if a.path and writes(a.tool) and a.outcome == "done")
    )


def commands(acts: Iterable[Action]) -> list[Action]:
    """Return the shell commands."""
    return [a for a in acts if SHELLS.search(a.tool)]


def open_failures(acts: Sequence[Action]) -> list[Action]:
    """Return failures that no later success of the same tool on the same target has cured."""
    last: dict[tuple[str, str], Action] = {}
    for a in acts:
        if a.outcome != "pending":
            last[a.tool, a.target] = a
    return [a for a in last.values() if a.outcome == "failed"]


def reasoning(
    messages: Sequence[Message], turns: Sequence[int], agent: str = "main", limit: int = 2000
) -> str:
    """Return fuseraft's block of reasoning excerpts, or an empty string where nothing
    was thought.
    """
    rows = []
    for m, turn in zip(messages, turns, strict=True):
        text = "\n".join(p.text for p in m.parts if isinstance(p, Thinking) and p.text)
        if text:
            cut = trims.cut(text, limit, f" [TRUNCATED — {len(text):,} chars total]")
            rows.append(f"Turn {turn + 1} ({m.agent or agent}): {cut}")
    return (
        "\n".join(["[REASONING EXCERPTS — model thinking for compacted turns]", *rows])
        if rows
        else ""
    )


def exploration(acts: Sequence[Action]) -> str:
    """Return fuseraft's block of what was looked at, or an empty string where nothing was."""
    read = [a.path for a in acts if a.path and reads(a.tool)]
    seeks = [
        a
        for a in acts
        if SEARCHES.search(a.tool) or (SHELLS.search(a.tool) and SEARCHES.search(a.target[:40]))
    ]
    if not read and not seeks:
        return ""
    rows = ["[EXPLORATION HISTORY — investigation performed before compaction]"]
    if read:
        rows.append(f"Files read: {len(set(read))} ({len(read)} reads)")
    rows += [f"  {a.tool}: {contents.one_line(a.target, 120)}" for a in seeks if a.target]
    often = [p for p in dict.fromkeys(read) if read.count(p) >= 3]
    return "\n".join([*rows, *(f"  read {read.count(p)} times: {p}" for p in often)])


def symbols(acts: Sequence[Action], texts: Iterable[tuple[str, str]]) -> str:
    """Return a block of what is defined in text that was written, and what other files name of it;
    or an empty string.

    Args:
        acts: what was done.
        texts: for each text the file that it was written to, as far as that is known.
    """
    held = list(texts)
    names: dict[str, tuple[str, str]] = {}
    for path, text in held:
        for kind, name in definitions(text):
            names.setdefault(name, (kind, path))
    if not names:
        return ""
    used = [
        (name, names[name][1])
        for path, text in held
        for name in dict.fromkeys(_WORD.findall(text))
        if path and name in names and names[name][1] not in ("", path)
    ]
    rows = [f"  SymbolDefinition ({kind}): {name}" for name, (kind, _) in names.items()]
    rows += [f"  SymbolReference: {name} → {target}" for name, target in dict.fromkeys(used)]
    files = len(files_written(acts))
    return "\n".join(
        [f"[SYMBOL DEPENDENCY GRAPH — {len(rows)} node(s) across {files} file(s)]", *rows]
    )


def definitions(text: str) -> list[tuple[str, str]]:
    """Return kind and name of what a text defines: functions, classes and their like."""
    return _SYMBOL.findall(text)


_WORD = re.compile(r"[A-Za-z_]\w{0,80}")


_SYMBOL = re.compile(
    r"^[ \t]{0,40}(?:export |public |private |async |static"
    r" ){0,3}(def|class|function|func|fn|struct|interface|enum)"
    r"[ \t]{1,4}([A-Za-z_]\w{0,80})",
    re.MULTILINE,
)


class Files(NamedTuple):
    """Paths that the calls of a message name."""

    read: frozenset[str]
    changed: frozenset[str]


def file_lists(found: Iterable[Files]) -> str:
    """Return Pi's lists of files that were read and changed, each sorted; a changed file is not
    listed as read.
    """
    found = list(found)
    changed = frozenset[str]().union(*[f.changed for f in found])
    read = frozenset[str]().union(*[f.read for f in found]) - changed
    out = ""
    for tag, names in (("read-files", read), ("modified-files", changed)):
        if names:
            out += f"\n\n<{tag}>\n" + "\n".join(sorted(names)) + f"\n</{tag}>"
    return out


def files(message: Message) -> Files | None:
    """Return the files that a message reads and changes; None: it names none."""
    named = [(c.name, path) for c in message.tool_calls if (path := _path(c.arguments))]
    read = frozenset([path for name, path in named if reads(name)])
    changed = frozenset([path for name, path in named if writes(name)])
    return Files(read, changed) if read or changed else None


def of_each(history: History, places: NDArray[Any], make: Callable[[Message], T | None]) -> list[T]:
    """Return what is made of the messages at some rising positions, where anything is.

    Of a message of the log it is made once, whatever is cut and summarised of it.
    """
    head, log = history.head, history.log
    edited = int(places.searchsorted(head.size))
    out = [made for p in places[:edited].tolist() if (made := make(history[p])) is not None]
    rows = (places[edited:] + (history.lo - head.size)).tolist()
    if not rows:
        return out
    asked, known = log.memo.setdefault(("of each", make), ([0], dict[int, T]()))
    for row in range(asked[0], rows[-1] + 1):
        if (made := make(log.messages[row])) is not None:
            known[row] = made
    asked[0] = max(asked[0], rows[-1] + 1)
    first, wanted = rows[0], set(rows)
    return out + [made for row, made in known.items() if row >= first and row in wanted]


def _path(arguments: dict[str, Any]) -> str:
    found = arguments.get("path") or arguments.get("file_path")
    return found if isinstance(found, str) else ""
