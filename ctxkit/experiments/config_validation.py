"""`ctxkit.validate`: what is wrong with a config file before anything runs by it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
from ctxkit._internal.value_kinds import PROPORTION
from ctxkit.errors import CtxkitError
from ctxkit.metrics.frames.columns import TEXT, FrameColumn, build_frame
from ctxkit.presets import config_syntax
from ctxkit.presets.config_keys import get_section
from ctxkit.presets.loading import config_format, detect_config_format, load_rules

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

LEVEL_ERROR, LEVEL_WARNING = "error", "warning"
FAULT_COLUMNS = (
    FrameColumn("level", TEXT, "", "error: it would not start; warning: it runs, and not as meant"),
    FrameColumn("why", TEXT, "", "a sentence"),
)
_get = partial(get_section, any_case=True)
_CHOICES = ("auto", "required", "none")
_Found = Iterator[tuple[str, str]]


def validate(path: str | Path | Mapping[str, str], *, system: str | None = None) -> pd.DataFrame:
    """Return what is wrong with a config file, a row each; none where nothing is.

    Args:
        path: as `load_rules` takes it.
        system: whose file it is, where its keys do not say.
    """
    rows = list(dict.fromkeys(_find_faults(path, system)))
    rows.sort(key=lambda row: row[0] != LEVEL_ERROR)
    return build_frame(
        FAULT_COLUMNS, {c.name: [row[i] for row in rows] for i, c in enumerate(FAULT_COLUMNS)}
    )


def _find_faults(path: str | Path | Mapping[str, str], system: str | None) -> _Found:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            load_rules(path, system=system)
        except CtxkitError as error:
            yield LEVEL_ERROR, sanitize_text(str(error), 600)
    for each in said:
        yield LEVEL_WARNING, sanitize_text(str(each.message), 600)
    try:
        content = dict(path) if isinstance(path, Mapping) else config_syntax.load_config(path)[0]
        config = config_format(system) if system else detect_config_format(content, str(path))
    except CtxkitError:
        return  # which is said already
    if config.system == "fuseraft":
        yield from _fuseraft(content)


def _fuseraft(content: Mapping[str, Any]) -> _Found:
    """Yield what fuseraft refuses, or warns of, and the rules of one agent cannot know."""
    body = _get(content, "Orchestration", default=content)
    if not isinstance(body, dict):
        yield LEVEL_ERROR, "Orchestration must be a section of keys and values."
        return
    cutover = _get(body, "ContextBudget.CutoverAt")
    cutover = cutover if isinstance(cutover, int) else 0
    single = _get(body, "ContextBudget.MaxSingleTurnInputTokens")
    for name, value in (("CutoverAt", cutover), ("MaxSingleTurnInputTokens", single)):
        if value and _get(body, "Compaction") is None:
            why = f"ContextBudget.{name} cannot fire without a Compaction section: add one."
            yield LEVEL_ERROR, why
    turn = _get(body, "WarnTurnTokens")
    if cutover and isinstance(turn, int) and turn >= cutover:
        late = f"WarnTurnTokens ({turn:,}) is no less than CutoverAt ({cutover:,})"
        yield LEVEL_WARNING, f"{late}: it warns too late."
    tracked = _get(body, "ChangeTracking.Path"), _get(body, "Validation.ChangeLogPath")
    if all(tracked) and tracked[0] != tracked[1]:
        yield LEVEL_ERROR, "ChangeTracking.Path and Validation.ChangeLogPath must be the same file."
    mode = str(_get(body, "Compaction.Mode")).casefold()
    if mode == "intent" and _get(body, "ChangeTracking") is None:
        yield LEVEL_WARNING, "Compaction.Mode intent falls back to a model without ChangeTracking."
    agents = _get(body, "Agents")
    yield from _agents(agents)
    if str(_get(body, "Selection.Type")).casefold() == "magentic":
        yield from _find_fresh_agents(agents)


def _find_fresh_agents(agents: Any) -> _Found:
    """Yield the agents that a manager speaks to and that hear nobody."""
    for i, agent in enumerate(agents if isinstance(agents, list) else ()):
        if str(_get(agent, "Isolation")).casefold() == "fresh":
            yield LEVEL_ERROR, f"Agents[{i}].Isolation is Fresh: it would not hear its manager."


def _agents(agents: Any) -> _Found:
    if not isinstance(agents, list) or not agents:
        yield LEVEL_WARNING, "It has no agents: fuseraft does not start without one."
        return
    names = [str(_get(agent, "Name", default="")) for agent in agents]
    for i, agent in enumerate(agents):
        if not names[i] and not _get(agent, "AgentFile"):
            yield LEVEL_ERROR, f"Agents[{i}] has no Name."
        choice = _get(agent, "FunctionChoice")
        if choice is not None and str(choice).casefold() not in _CHOICES:
            yield LEVEL_ERROR, f"Agents[{i}].FunctionChoice is one of {', '.join(_CHOICES)}."
        trust = _get(agent, "TrustScore")
        if trust is not None and PROPORTION.convert(trust) is None:
            yield LEVEL_ERROR, f"Agents[{i}].TrustScore lies between 0 and 1."
    folded = [n.casefold() for n in names if n]
    for name in dict.fromkeys(n for n in folded if folded.count(n) > 1):
        yield LEVEL_ERROR, f"Two agents are called {sanitize_text(name, 60)!r}."
