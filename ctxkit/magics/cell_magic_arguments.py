"""Arguments of `%%agent`, `%compact` and `%%team`."""

# An option with a `setting` is defined once: `%config CtxKit` has a setting of that name, which
# holds for sessions that are opened without the option.

from __future__ import annotations

from dataclasses import dataclass

from ctxkit.magics.line_parser import (
    get_setting_defaults_and_help,
    option_field,
    positional_field,
    remaining_text_field,
)

_SESSION, _TOOLS, _PROMPT = "Session", "Tools and files", "Prompt"
_LIMITS, _RESULT, _TEAM = "Limits of the turn", "Result", "Team"
"""Headings under which the help groups options."""


@dataclass(frozen=True)
class AgentArguments:
    """The line of `%%agent`."""

    prompt: str = remaining_text_field("what the agent shall do (a cell's body is added)")
    session: str | None = option_field(
        "name of the session; one that exists is continued", completes="session", task=_SESSION
    )
    model: str | None = option_field(
        "scripted[/NAME] (needs no key), local[/FILE], or a provider's model as LiteLLM names it",
        setting="scripted/tour",
        task=_SESSION,
    )
    summary_model: str | None = option_field(
        "model that writes the summaries; the default is --model, for a script an extract",
        setting="",
        task=_SESSION,
    )
    rules: str | None = option_field(
        "when and how to compact: a preset, `standard`, `none`, a variable, or words for a policy",
        completes="rules",
        setting="standard",
        task=_SESSION,
    )
    tools: str | None = option_field(
        "files, document, work, shell, python, or functions of yours; separated by commas",
        completes="tools",
        setting="files",
        task=_TOOLS,
    )
    via: str | None = option_field(
        "run another program's agent instead: acp:COMMAND, such as acp:'gemini --acp'",
        setting="",
        task=_SESSION,
    )
    mcp: str | None = option_field(
        "an MCP server that brings tools: a command in quotes, a file with mcpServers, a variable",
        completes="path",
        setting="",
        task=_TOOLS,
    )
    root: str | None = option_field(
        "folder that the file tools read and write; without it a scratch folder",
        completes="path",
        setting="",
        task=_TOOLS,
    )
    allow: str | None = option_field(
        "protected names that the file tools may write, such as conftest.py; separated by commas",
        setting="",
        task=_TOOLS,
    )
    system: str | None = option_field(
        "instructions with which a session begins: a text in quotes, a file, or a variable",
        completes="path",
        setting="",
        task=_PROMPT,
    )
    sections: str | None = option_field(
        "parts of the system prompt: on, off, names, or names with - or + before them",
        completes="section",
        setting="on",
        task=_PROMPT,
    )
    memory: str | None = option_field(
        "on, off, local (read anew each turn), digest, model (it says at the end what to remember),"
        " or variables that hold a webhook; separated by commas; without it on, for a script off",
        completes="memory",
        setting="",
        task=_PROMPT,
    )
    approve: str | None = option_field(
        "tools that ask you before each call, or files, or all; separated by commas",
        completes="tools",
        setting="",
        task=_TOOLS,
    )
    output: str | None = option_field(
        "how much of a tool's output is kept: lines=N,chars=N,bytes=N,mode=head,spill=N",
        setting="",
        task=_TOOLS,
    )
    attach: str | None = option_field(
        "pictures sent with the prompt: files, or variables with a figure; separated by commas",
        completes="path",
        task=_PROMPT,
    )
    trust: bool = option_field(
        "continue a session that came with the folder and was not made here",
        default=False,
        task=_SESSION,
    )
    max_calls: int | None = option_field("calls to the model in this turn, at most", task=_LIMITS)
    max_cost: float | None = option_field(
        "dollars in this turn, at most; checked before each call", task=_LIMITS
    )
    max_tokens: int | None = option_field("tokens billed in this turn, at most", task=_LIMITS)
    max_seconds: float | None = option_field("seconds of this turn, at most", task=_LIMITS)
    out: str | None = option_field(
        "variable that gets the answer; with --background the handle", task=_RESULT
    )
    background: bool = option_field(
        "run beside the notebook; gives a handle with a Stop button", default=False, task=_RESULT
    )
    expand: bool = option_field(
        "replace each {{name}} by the value of that variable", default=False, task=_PROMPT
    )
    dry_run: bool = option_field(
        "show what would be sent, and send nothing", default=False, task=_RESULT
    )


@dataclass(frozen=True)
class CompactArguments:
    """The line of `%compact`."""

    focus: str = remaining_text_field("what the summary shall keep, in plain words")
    session: str | None = option_field(
        "another live session than the current one", completes="session"
    )
    rules: str | None = option_field(
        "use the policy of other rules this once: a preset, a variable, words", completes="rules"
    )
    keep: int | None = option_field("number of newest turns that stay as they are")
    dry_run: bool = option_field("show what it would do, and do nothing", default=False)


@dataclass(frozen=True)
class TeamArguments:
    """The line of `%%team`."""

    name: str = positional_field(
        "name of the team; one that was begun is continued", default="team"
    )
    config: str | None = option_field(
        "orchestration file; without one a team that needs no key",
        completes="path",
        setting="scripted",
        task=_TEAM,
    )
    model: str | None = option_field(
        "model of all agents: scripted[:FILE] (needs no key), or a provider's",
        setting="",
        task=_TEAM,
    )
    tools: str | None = option_field(
        "tools that agents may have at most: files, document, shell, python; separated by commas",
        setting="files",
        task=_TOOLS,
    )
    root: str | None = option_field(
        "folder in which all agents work; without it a scratch folder",
        completes="path",
        setting="",
        task=_TOOLS,
    )
    allow: str | None = option_field(
        "protected names that agents may write, separated by commas", setting="", task=_TOOLS
    )
    memory: str | None = option_field(
        "memory to use beside the team's own: user, webhook", setting="", task=_TEAM
    )
    approve: str | None = option_field(
        "tools that ask you before each call, or files, or all", completes="tools", task=_TOOLS
    )
    out: str | None = option_field("variable that gets the team", task=_RESULT)


SESSION_SETTINGS = tuple(get_setting_defaults_and_help(AgentArguments))
"""Options that are stored with a session when it is opened."""
