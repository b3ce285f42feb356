"""Files of a config: referenced agents and prompts, duplicate keys, fuseraft paths."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit._internal.formatting import sanitize_text
from ctxkit.agent.tools import root
from ctxkit.agent.tools.root import Root
from ctxkit.errors import BadArguments, CtxkitError, StoreError
from ctxkit.presets import config_syntax
from ctxkit.presets.config_keys import ConfigSection
from ctxkit.presets.fuseraft_config import orchestration_section

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from ctxkit.teams.plan import TeamPlan


_INHERITED_VALUES: tuple[Any, ...] = (None, "", 0, "auto")
"""Values by which an agent's section says that its file's is meant, as fuseraft has it."""
_MAX_FILE_BYTES = 200_000


def load_referenced_files(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a config with what its files say in the places where they are named.

    Args:
        config: as it was read.
        folder: where its file lies.

    Raises:
        BadArguments: a file is not there, lies elsewhere, or holds no agent.
    """
    whole = ConfigSection(config)
    body = orchestration_section(config)
    made = {k: v for k, v in body.values.items() if k.casefold() != "systempromptpath"}
    root = Root(folder)
    path = body.text("SystemPromptPath")
    if path:
        named = {k for k in made if k.casefold() == "systemprompt"}
        made = {k: v for k, v in made.items() if k not in named}
        made["SystemPrompt"] = _read_prompt_file(root, path)
    key = next((k for k in made if k.casefold() == "agents"), None)
    if key is not None:
        made[key] = [_load_agent(root, f) for f in body.rows("Agents")]
    if whole.get("Orchestration") is None:
        return made
    name = next(k for k in whole if k.casefold() == "orchestration")
    return {**whole.values, name: made}


def _load_agent(root: Root, f: ConfigSection) -> dict[str, Any]:
    path = f.text("AgentFile")
    own = {k: v for k, v in f.values.items() if k.casefold() != "agentfile"}
    if not path:
        return own
    try:
        found, _ = config_syntax.load_config(root.resolve(path))
    except CtxkitError as e:
        raise BadArguments(f"AgentFile {sanitize_text(path, 120)}: {e}") from None
    base = ConfigSection(found)
    base = base if base.get("Agent") is None else base.section("Agent")
    said = {
        k.casefold() for k, v in own.items() if v not in _INHERITED_VALUES and v not in ([], {})
    }
    return {**{k: v for k, v in base.values.items() if k.casefold() not in said},
            **{k: v for k, v in own.items() if k.casefold() in said}}  # fmt: skip


def _read_prompt_file(root: Root, path: str) -> str:
    try:
        return root.read(path, _MAX_FILE_BYTES, whole=True).decode("utf-8", "replace")
    except StoreError as e:
        raise BadArguments(f"SystemPromptPath: {e}") from None


_PATH = re.compile(r"(?:~/)?\.fuseraft/[\w./{}-]*")
_TOKEN = re.compile(r"\{(?:session_id|project_slug)\}")


def localise_paths(config: Any) -> Any:
    """Return a config in which paths below `~/.fuseraft` are below the team's `.fuseraft`.

    Its tokens `{project_slug}/` and `{session_id}/` are left out: a team has one folder. Names that
    YAML takes for numbers are texts.
    """
    if isinstance(config, dict):
        return {str(k): localise_paths(v) for k, v in config.items()}
    if isinstance(config, list):
        return [localise_paths(v) for v in config]
    return _PATH.sub(_localise_path, config) if isinstance(config, str) else config


def _localise_path(found: re.Match[str]) -> str:
    path = found[0].removeprefix("~/")
    for token in ("{project_slug}/", "{session_id}/"):
        path = path.replace(token, "")
    return _TOKEN.sub("team", path)


def describe_protected_files(plan: TeamPlan, allow: Collection[str]) -> list[str]:
    """Say in a sentence which files its contracts ask for that no agent may write."""
    names = dict.fromkeys(p for p in _required_files(plan) if _is_protected(p, allow))
    if not names:
        return []
    first = sanitize_text(next(iter(names)), 120)
    found = next((n for n in root.PROTECTED_NAMES if n in first.split("/")), "")
    how = f"allow=({found!r},)" if found else "allow="
    return [f"Its contracts ask for {first}, which agents may not write: {how} lets them."]


def _is_protected(path: str, allow: Collection[str]) -> bool:
    try:
        root.check_writable(path, path.split("/"), allow)
    except StoreError:
        return True
    return False


def _required_files(plan: TeamPlan) -> Iterator[str]:
    """Yield the files that contracts read, as the config writes them."""
    for state in plan.states.values():
        for way in state.transitions:
            for need in (r for c in way.contracts for r in c.requires):
                read = need.kind != "CommandSucceeded" or bool(need.field)
                if need.path or (read and not need.this_turn):
                    yield need.path or (plan.report if need.kind == "TestReport" else plan.brief)


def read_json(root: ReadableFolder, path: str) -> dict[str, Any] | None:
    """Return a JSON object of the team's folder; None where there is no such one."""
    try:
        value = json.loads(read_text(root, path))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_text(root: ReadableFolder, path: str) -> str:
    """Return a text of the team's folder, at most a million bytes; empty where unreadable."""
    try:
        return root.read(path, _MAX_READ_BYTES).decode("utf-8", "replace")
    except StoreError:
        return ""


class ReadableFolder(Protocol):
    """A folder, or the record of one."""

    def read(self, name: str, most: int, /) -> bytes:
        """Return a file's bytes; StoreError where there is none."""


_MAX_READ_BYTES = 1_000_000
