"""The lines of `%%agent`, `%%team` and `%compact`: what may be written after them."""

from __future__ import annotations

from dataclasses import dataclass

from ctxkit.magics.arguments import option, rest, word


@dataclass(frozen=True)
class Ask:
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
class Compact:
    """The line of `%compact`."""

    focus: str = rest("what the summary shall look at, in plain words")
    session: str | None = option("another live session than the current one", completes="session")
    rules: str | None = option(
        "rules whose policy is used once: a variable, a preset, words", completes="rules"
    )
    keep: int | None = option("turns that stay as they are")
    dry_run: bool = option("show what it would do, and do nothing", default=False)


@dataclass(frozen=True)
class AskTeam:
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
