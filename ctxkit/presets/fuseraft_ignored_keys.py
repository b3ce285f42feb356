"""The sentence on ignored keys of fuseraft's file: a short list, the most important first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit._internal.formatting import sanitize_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PLUGINS_KEY, TERMINATION_KEY = "Plugins", "Termination"
_WEIGHTY_KEYS = (
    # other agents, tools and turns than the file asks for
    *("RemoteAgent", "McpServers", PLUGINS_KEY, "SubGraphs", "Merge", "MaxConcurrency"),
    *("FunctionChoice", TERMINATION_KEY, "Saga", "FindRelatedCommand", "ShellFallbackPattern"),
    # what a person is asked, and what an agent is kept from
    *("RequireHumanApproval", "EnablePlanReview", "Security", "TrustScore"),
    # what a prompt holds, and how a model answers
    *("Brownfield", "KnowledgeWeight", "SkipExecutionState", "Produces", "Requires", "Model"),
)
_LIGHT_KEYS = (
    *("Output", "Telemetry", "Models", "ApiProfiles"),
    # where fuseraft keeps its files
    *("ChangeTracking", "EvidenceStore", "ChangeLogPath", "Checkpoint", "Events"),
)
_OTHERS = len(_WEIGHTY_KEYS)
_KEY_WEIGHTS = {
    key.casefold(): place for place, key in enumerate((*_WEIGHTY_KEYS, "", *_LIGHT_KEYS))
}
"""Places of keys in the list, by the key in lower case; all others are at `_OTHERS`."""


def weigh_key(path: str) -> int:
    """Return the rank of a key in the list of ignored keys, the most important first."""
    names = re.findall(r"\w+", path.casefold())
    return min((_KEY_WEIGHTS[name] for name in names if name in _KEY_WEIGHTS), default=_OTHERS)


MAX_REASONS = 8
"""Maximum number of reasons in a list; the others are counted."""


def format_ignored_keys(rows: Iterable[tuple[str, Sequence[str], str]]) -> str:
    """Return a sentence on the ignored keys, the most important first; empty: none is ignored.

    Args:
        rows: key, agents that have it, reason; keys of one reason are named together.
    """
    by_reason: dict[str, list[str]] = {}
    for key, agents, reason in sorted(rows, key=lambda row: weigh_key(row[0])):
        more = f" and {len(agents) - 3} more" if len(agents) > 3 else ""
        of = f" of {', '.join(sanitize_text(a, 40) for a in agents[:3])}{more}" if agents else ""
        by_reason.setdefault(reason, []).append(f"{sanitize_text(key, 80)}{of}")
    parts = [", ".join(keys) + (f" ({why})" if why else "") for why, keys in by_reason.items()]
    listed, omitted = parts[:MAX_REASONS], parts[MAX_REASONS:]
    rest = f"; and {len(omitted)} more" if omitted else ""
    return f"Not obeyed here, the weightiest first: {'; '.join(listed)}{rest}." if listed else ""
