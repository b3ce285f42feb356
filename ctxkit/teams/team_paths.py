"""Paths of fuseraft's own folders in a config: here they lie in the team's folder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import StoreError
from ctxkit.tools import protected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ctxkit.teams.rosters import Roster

_PATH = re.compile(r"(?:~/)?\.fuseraft/[\w./{}-]*")
_TOKEN = re.compile(r"\{(?:session_id|project_slug)\}")


def with_own_paths(config: Any) -> Any:
    """Return a config in which paths below `~/.fuseraft` are below the team's `.fuseraft`.

    Its tokens `{project_slug}/` and `{session_id}/` are left out: a team has one folder. Names that
    YAML takes for numbers are texts.
    """
    if isinstance(config, dict):
        return {str(k): with_own_paths(v) for k, v in config.items()}
    if isinstance(config, list):
        return [with_own_paths(v) for v in config]
    return _PATH.sub(_own, config) if isinstance(config, str) else config


def _own(found: re.Match[str]) -> str:
    path = found[0].removeprefix("~/")
    for token in ("{project_slug}/", "{session_id}/"):
        path = path.replace(token, "")
    return _TOKEN.sub("team", path)


def barred(plan: Roster, allow: Collection[str]) -> list[str]:
    """Say in a sentence which files its contracts ask for that no agent may write."""
    names = dict.fromkeys(p for p in _asked(plan) if _is_barred(p, allow))
    if not names:
        return []
    first = plain(next(iter(names)), 120)
    found = next((n for n in protected.PROTECTED if n in first.split("/")), "")
    how = f"allow=({found!r},)" if found else "allow="
    return [f"Its contracts ask for {first}, which agents may not write: {how} lets them."]


def _is_barred(path: str, allow: Collection[str]) -> bool:
    try:
        protected.check(path, path.split("/"), allow)
    except StoreError:
        return True
    return False


def _asked(plan: Roster) -> Iterator[str]:
    """Yield the files that contracts read, as the config writes them."""
    for state in plan.states.values():
        for way in state.transitions:
            for need in (r for c in way.contracts for r in c.requires):
                read = need.kind != "CommandSucceeded" or bool(need.field)
                if need.path or (read and not need.this_turn):
                    yield need.path or (plan.report if need.kind == "TestReport" else plan.brief)
