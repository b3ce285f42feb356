"""Subcommands and cell magics: their lines, dispatch, help and text output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting import escape_html, sanitize_text
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.arguments import (
    format_usage,
    option,
    parse_line,
    rest,
    split_tokens,
    strip_comment,
    strip_semicolon,
    wants_help,
    word,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.magics.kit_state import KitState


@dataclass(frozen=True)
class Subcommand:
    """One word after a magic; `run` gets the kit and the parsed line, and its value is shown and
    returned.
    """

    name: str
    help: str
    shape: type
    run: Callable[[KitState, Any], object]


def run_subcommand(
    kit: KitState, magic: str, known: Mapping[str, Subcommand], line: str, default: str
) -> object:
    """Run the subcommand that a line names; one without a subcommand goes to the default.

    Raises:
        BadArguments: no subcommand of that name.
    """
    line = strip_comment(line)
    first = next(split_tokens(line), None)
    if first is None or first.text.startswith("-"):
        if wants_help(line):
            return TextPage(format_overview(magic, known, default))
        chosen, after = known[default], line
    elif first.text in known:
        chosen, after = known[first.text], line[first.start + len(first.text) :]
    else:
        near = did_you_mean(first.text, known)
        raise BadArguments(
            f"`{magic}` knows no {first.text!r}.{near} It knows: {', '.join(known)}."
        )
    name = magic if chosen.name == default else f"{magic} {chosen.name}"
    if wants_help(after):
        return TextPage(f"{format_usage(chosen.shape, name)}\n\n{chosen.help}")
    return chosen.run(kit, parse_line(chosen.shape, after, name))


def format_overview(magic: str, known: Mapping[str, Subcommand], default: str) -> str:
    """Return the help of a magic: its own line, then one line a subcommand."""
    width = max(len(name) for name in known)
    lines = [f"  {magic} {name:<{width}}  {s.help}" for name, s in known.items()]
    head = (
        f"{magic} [SUBCOMMAND]: without one it is `{magic} {default}`. `{magic} SUBCOMMAND -h`"
        " explains each."
    )
    return "\n".join([head, "", *lines])


@dataclass(frozen=True)
class AgentLine:
    """The line of `%%agent`."""

    prompt: str = rest("what the agent shall do (a cell's body is added)")
    session: str | None = option(
        "name of the session; one that exists goes on", completes="session"
    )
    model: str | None = option(
        "scripted[/NAME], local[/FILE], or a provider's model as LiteLLM names it"
    )
    summary_model: str | None = option("another model that writes the summaries")
    rules: str | None = option(
        "a variable that holds rules, a preset, `standard`, or words for a policy",
        completes="rules",
    )
    tools: str | None = option(
        "files, shell, python, or functions of yours; separated by commas", completes="tools"
    )
    via: str | None = option("an agent of another program: acp:COMMAND, such as acp:'gemini --acp'")
    mcp: str | None = option(
        "an MCP server that brings tools: a command in quotes, a file with mcpServers, a variable",
        completes="path",
    )
    root: str | None = option(
        "folder of the file tools; without it a scratch folder", completes="path"
    )
    allow: str | None = option(
        "protected names the file tools may write, such as conftest.py; separated by commas"
    )
    system: str | None = option(
        "instructions a session begins with: a text in quotes, a file, or a variable",
        completes="path",
    )
    sections: str | None = option(
        "sections put into prompts: on, off, names, or names with - or + before them",
        completes="section",
    )
    memory: str | None = option(
        "on, off, local, digest, model (it says at the end what to remember), or variables that"
        " hold a webhook; separated by commas",
        completes="memory",
    )
    approve: str | None = option(
        "tools that ask you before each call, or files, or all; separated by commas",
        completes="tools",
    )
    output: str | None = option(
        "how much of a tool's output is kept: lines=N,chars=N,bytes=N,mode=head,spill=N"
    )
    attach: str | None = option(
        "pictures that go with the prompt: files, or variables that hold a figure; by commas",
        completes="path",
    )
    trust: bool = option("go on with a session that came with the folder", default=False)
    max_calls: int | None = option("calls to the model in this turn, at most")
    max_cost: float | None = option("dollars in this turn, at most; checked before each call")
    max_tokens: int | None = option("tokens billed in this turn, at most")
    max_seconds: float | None = option("seconds of this turn, at most")
    out: str | None = option("variable that gets the answer; with --background the handle")
    background: bool = option(
        "run beside the notebook; gives a handle with a Stop button", default=False
    )
    expand: bool = option("put the values of variables in place of {{name}}", default=False)
    dry_run: bool = option("show what would be sent, and send nothing", default=False)


@dataclass(frozen=True)
class CompactLine:
    """The line of `%compact`."""

    focus: str = rest("what the summary shall look at, in plain words")
    session: str | None = option("another live session than the current one", completes="session")
    rules: str | None = option(
        "rules whose policy is used once: a variable, a preset, words", completes="rules"
    )
    keep: int | None = option("turns that stay as they are")
    dry_run: bool = option("show what it would do, and do nothing", default=False)


@dataclass(frozen=True)
class TeamLine:
    """The line of `%%team`."""

    name: str = word("name of the team; one that was begun goes on", default="team")
    config: str | None = option("path of a config; without one, scripted", completes="path")
    model: str | None = option("model of all agents")
    tools: str | None = option("what agents may have at most, separated by commas; else files")
    root: str | None = option(
        "folder in which all work; without it a scratch folder", completes="path"
    )
    allow: str | None = option("protected names that may be written, separated by commas")
    memory: str | None = option("what its memory reaches beyond its own: user, webhook")
    approve: str | None = option(
        "tools that ask before each call, or files, or all", completes="tools"
    )
    out: str | None = option("variable that gets the team")


class CellMagic(NamedTuple):
    """How a magic is called, the shape of its line, and what its help says of the cell."""

    magic: str
    shape: type
    note: str


AGENT_MAGIC = CellMagic(
    "%%agent",
    AgentLine,
    "The cell is the prompt. Without one, `%agent` says how the session stands.",
)
TEAM_MAGIC = CellMagic(
    "%%team", TeamLine, "The cell is the task; `%team NAME` goes on with the one it has."
)
COMPACT_MAGIC = CellMagic(
    "%compact", CompactLine, "A focus that ends in `?` goes into the cell of `%%compact`."
)


def run_cell_magic(
    kit: KitState,
    known: CellMagic,
    line: str,
    cell: str | None,
    run: Callable[[KitState, Any, str], object],
) -> object:
    """Run what a line and the cell below it ask for, or say how the line is written."""
    words = line if cell is not None else strip_semicolon(line)
    if wants_help(words):
        return TextPage(f"{format_usage(known.shape, known.magic)}\n\n{known.note}")
    return run(kit, parse_line(known.shape, words, known.magic), cell or "")


_TEXT_STYLE = "white-space:pre-wrap;margin:0;color:var(--jp-content-font-color1,inherit)"


@dataclass(frozen=True, repr=False)
class TextPage:
    """A text that is shown as it stands, in a fixed pitch."""

    text: str

    def __repr__(self) -> str:
        return sanitize_text(self.text)

    def _repr_html_(self) -> str:
        return f'<pre style="{_TEXT_STYLE}">{escape_html(self.text)}</pre>'
