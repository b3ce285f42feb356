"""Limits on what the agents of a team write: `Capabilities` and `Security.ChangeEnvelope`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting import sanitize_text
from ctxkit._internal.setting_types import FLAG
from ctxkit.errors import BadArguments, StoreError
from ctxkit.session.tool_calls import is_write_tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.presets.config_schema import ConfigSection

CAPABILITY_TAGS = {"filesystem": ("read", "write", "delete"), "shell": ("read", "run")}
"""Tags of fuseraft's plugins that ctxkit has tools for."""
MAX_GLOBS = 200
"""Globs of an envelope; each is matched against every path that an agent writes."""


@dataclass(frozen=True, kw_only=True)
class ToolCapabilities:
    """Rights of an agent's tools by its `Capabilities`; an unnamed plugin has all rights."""

    may_write: bool = True
    may_run: bool = True


def parse_capabilities(f: ConfigSection) -> ToolCapabilities:
    """Return the capabilities in an agent's section `f`.

    Args:
        f: section of one agent.

    Returns:
        What its file tools and its shell may do.

    Raises:
        BadArguments: it names a tag that fuseraft does not have.
    """
    granted = {}
    for plugin in f.section("Capabilities"):
        tags = [t.casefold() for t in f.section("Capabilities").texts(plugin)]
        allowed_tags = CAPABILITY_TAGS.get(plugin.casefold())
        for tag in (t for t in tags if allowed_tags is not None and t not in allowed_tags):
            raise BadArguments(
                f"Capabilities.{sanitize_text(plugin, 40)} of {sanitize_text(f.text('Name'), 40)}"
                f" names {sanitize_text(tag, 40)!r}; there are {', '.join(allowed_tags or ())}."
            )
        granted[plugin.casefold()] = tags
    return ToolCapabilities(
        may_write="write" in granted.get("filesystem", ("write",)),
        may_run="run" in granted.get("shell", ("run",)),
    )


@dataclass(frozen=True)
class ChangeEnvelope:
    """The files that file tools may write, as globs below the team's folder; none: all files.

    `*` and `?` stay within a name, `**` reaches over folders.
    """

    globs: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        """Return True if a path below the folder may be written."""
        parts = path.split("/")
        return not self.globs or any(_matches(glob.split("/"), parts) for glob in self.globs)


def _matches(glob: Sequence[str], parts: Sequence[str]) -> bool:
    """Match a path part by part; the time is at most the product of both lengths."""
    # positions in the path that the glob's parts so far can match up to
    reached = {0}
    for name in glob:
        if name == "**":
            reached = set(range(min(reached), len(parts) + 1))
        else:
            reached = {n + 1 for n in reached if n < len(parts) and fnmatchcase(parts[n], name)}
        if not reached:
            return False
    return len(parts) in reached


def parse_envelope(body: ConfigSection) -> ChangeEnvelope:
    """Return the envelope of a config.

    Args:
        body: the config; `Security.ChangeEnvelope` is read.

    Returns:
        The globs with `/` between folders; none allow every file.

    Raises:
        BadArguments: there are too many globs.
    """
    globs = body.section("Security").texts("ChangeEnvelope")
    if len(globs) > MAX_GLOBS:
        raise BadArguments(
            f"Security.ChangeEnvelope has {len(globs):,} globs, and at most {MAX_GLOBS} are taken:"
            " name folders, such as src/**."
        )
    return ChangeEnvelope(tuple(g.replace("\\", "/").removeprefix("./") for g in globs))


_MAX_BRIEF_BYTES = 1_000_000
WORK_FILES = ".fuseraft/**"
"""Globs that a seeded envelope also allows: fuseraft has these files outside the project."""


def extend_envelope_from_brief(
    envelope: ChangeEnvelope, body: ConfigSection, root: RootFolder
) -> ChangeEnvelope:
    """Return an envelope with the files that a brownfield's discovery brief names.

    Args:
        envelope: the config's envelope.
        body: the config.
        root: the folder of the team, which may have the brief of an earlier run.

    Returns:
        The envelope as it is where there is no brief yet, or the config does not use it.
    """
    brownfield = body.section("Brownfield")
    path = brownfield.text("DiscoveryBriefPath")
    if not path or not brownfield.read("SeedEnvelopeFromBrief", FLAG, default=True):
        return envelope
    try:
        brief = json.loads(root.read(path, _MAX_BRIEF_BYTES, whole=True))
    except (StoreError, ValueError, RecursionError):
        return envelope  # the run that writes the brief comes first
    files = brief.get("in_scope_files") if isinstance(brief, dict) else None
    names = [f for f in files if isinstance(f, str)] if isinstance(files, list) else []
    return ChangeEnvelope((*envelope.globs, *names, WORK_FILES)) if names else envelope


def limit_tools(
    tools: Iterable[Tool],
    capabilities: ToolCapabilities,
    envelope: ChangeEnvelope,
    root: RootFolder,
) -> list[Tool]:
    """Return file tools that refuse forbidden writes with a sentence.

    Args:
        tools: file tools.
        capabilities: capabilities of the agent that gets them.
        envelope: envelope of its team.
        root: the folder in which they work.

    Returns:
        The tools in their order: writing ones are left out without the capability, else they check
        each path against the envelope.
    """
    allowed = [t for t in tools if capabilities.may_write or not is_write_tool(t.name)]
    if not envelope.globs:
        return allowed
    return [_within(t, envelope, root) if is_write_tool(t.name) else t for t in allowed]


def _within(tool: Tool, envelope: ChangeEnvelope, root: RootFolder) -> Tool:
    """Return a tool that writes only inside an envelope; its schema stays."""

    def run(**arguments: Any) -> Any:
        # the path is resolved as the tool itself resolves it, so that no `..` and no link leads out
        path = "/".join(root.parts(str(arguments.get("path", ""))))
        if not envelope.covers(path):
            raise BadArguments(
                f"{sanitize_text(path, 200)!r} lies outside of the change envelope, and was not"
                f" written; files of {_describe_globs(envelope.globs)} may be."
            )
        return tool.run(**arguments)

    # the arguments are checked against the signature of the tool itself
    run.__wrapped__ = tool.run  # type: ignore[attr-defined]
    run.__annotations__ = dict(tool.run.__annotations__)
    return msgspec.structs.replace(tool, run=run)


def _describe_globs(globs: Sequence[str]) -> str:
    more = f" and {len(globs) - 5} more" if len(globs) > 5 else ""
    return ", ".join(sanitize_text(g, 60) for g in globs[:5]) + more
