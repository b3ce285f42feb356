"""Files that a team's config names beside itself: agents (`AgentFile`), the base prompt
(`SystemPromptPath`). None is read outside of the config's folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, CtxkitError, StoreError
from ctxkit.presets.configs import syntaxes
from ctxkit.teams.config_fields import Fields
from ctxkit.tools.root import Root

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_INHERITED: tuple[Any, ...] = (None, "", 0, "auto")
"""Values by which an agent's section says that its file's is meant, as fuseraft has it."""
_MOST = 200_000


def with_files(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a config with what its files say in the places where they are named.

    Args:
        config: as it was read.
        folder: where its file lies.

    Raises:
        BadArguments: a file is not there, lies elsewhere, or holds no agent.
    """
    whole = Fields(config)
    held = whole.section("Orchestration")
    body = held or whole
    made = {k: v for k, v in body.values.items() if k.casefold() != "systempromptpath"}
    root = Root(folder)
    path = body.text("SystemPromptPath")
    if path:
        named = {k for k in made if k.casefold() == "systemprompt"}
        made = {k: v for k, v in made.items() if k not in named}
        made["SystemPrompt"] = _text(root, path)
    key = next((k for k in made if k.casefold() == "agents"), None)
    if key is not None:
        made[key] = [_agent(root, f) for f in body.rows("Agents")]
    if held is None:
        return made
    name = next(k for k in whole if k.casefold() == "orchestration")
    return {**whole.values, name: made}


def _agent(root: Root, f: Fields) -> dict[str, Any]:
    path = f.text("AgentFile")
    own = {k: v for k, v in f.values.items() if k.casefold() != "agentfile"}
    if not path:
        return own
    try:
        found, _ = syntaxes.load(root.resolve(path))
    except CtxkitError as e:
        raise BadArguments(f"AgentFile {plain(path, 120)}: {e}") from None
    base = Fields(found).section("Agent") or Fields(found)
    said = {k.casefold() for k, v in own.items() if v not in _INHERITED and v not in ([], {})}
    return {**{k: v for k, v in base.values.items() if k.casefold() not in said},
            **{k: v for k, v in own.items() if k.casefold() in said}}  # fmt: skip


def _text(root: Root, path: str) -> str:
    try:
        return root.read(path, _MOST, whole=True).decode("utf-8", "replace")
    except StoreError as e:
        raise BadArguments(f"SystemPromptPath: {e}") from None
