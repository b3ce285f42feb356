"""What is wrong with a config file before anything runs by it: `ck.validate("orchestration.yaml")`.

fuseraft's own rules are those of `fuseraft validate` and of its start, read in
`ValidateConfigCommand.cs` and `OrchestratorBuilder.cs`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import CtxkitError
from ctxkit.frames.frame_columns import TEXT, FrameColumn, build
from ctxkit.presets.configs import syntaxes
from ctxkit.presets.configs.config_files import named, recognised
from ctxkit.presets.configs.key_tables import section
from ctxkit.presets.loaders import load_rules

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

ERROR, WARNING = "error", "warning"
COLUMNS = (
    FrameColumn("level", TEXT, "", "error: it would not start; warning: it runs, and not as meant"),
    FrameColumn("why", TEXT, "", "a sentence"),
)
_CHOICES = ("auto", "required", "none")
_Found = Iterator[tuple[str, str]]


def validate(path: str | Path | Mapping[str, str], *, system: str | None = None) -> pd.DataFrame:
    """Return what is wrong with a config file, a row each; none where nothing is.

    Args:
        path: as `load_rules` takes it.
        system: whose file it is, where its keys do not say.
    """
    rows = list(dict.fromkeys(_all(path, system)))
    rows.sort(key=lambda row: row[0] != ERROR)
    return build(COLUMNS, {c.name: [row[i] for row in rows] for i, c in enumerate(COLUMNS)})


def _all(path: str | Path | Mapping[str, str], system: str | None) -> _Found:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            load_rules(path, system=system)
        except CtxkitError as error:
            yield ERROR, plain(str(error), 600)
    for each in said:
        yield WARNING, plain(str(each.message), 600)
    try:
        content = dict(path) if isinstance(path, Mapping) else syntaxes.load(path)[0]
        config = named(system) if system else recognised(content, str(path))
    except CtxkitError:
        return  # which is said already
    if config.system == "fuseraft":
        yield from _fuseraft(_folded(content.get("Orchestration", content)))


def _fuseraft(body: Any) -> _Found:
    """Yield what fuseraft refuses, or warns of, and the rules of one agent cannot know."""
    if not isinstance(body, dict):
        yield ERROR, "Orchestration must be a section of keys and values."
        return
    limits = {k: section(body, f"contextbudget.{k}") for k in ("warnat", "cutoverat")}
    cutover = limits["cutoverat"] if isinstance(limits["cutoverat"], int) else 0
    single = section(body, "contextbudget.maxsingleturninputtokens")
    for name, value in (("CutoverAt", cutover), ("MaxSingleTurnInputTokens", single)):
        if value and "compaction" not in body:
            why = f"ContextBudget.{name} cannot fire without a Compaction section: add one."
            yield ERROR, why
    turn = body.get("warnturntokens")
    if cutover and isinstance(turn, int) and turn >= cutover:
        late = f"WarnTurnTokens ({turn:,}) is no less than CutoverAt ({cutover:,})"
        yield WARNING, f"{late}: it warns too late."
    tracked = section(body, "changetracking.path"), section(body, "validation.changelogpath")
    if all(tracked) and tracked[0] != tracked[1]:
        yield ERROR, "ChangeTracking.Path and Validation.ChangeLogPath must be the same file."
    mode = str(section(body, "compaction.mode")).casefold()
    if mode == "intent" and "changetracking" not in body:
        yield WARNING, "Compaction.Mode intent falls back to a model without ChangeTracking."
    yield from _agents(body.get("agents"))
    if str(section(body, "selection.type")).casefold() == "magentic":
        yield from _alone(body.get("agents"))


def _alone(agents: Any) -> _Found:
    """Yield the agents that a manager speaks to and that hear nobody."""
    for i, agent in enumerate(agents if isinstance(agents, list) else ()):
        if isinstance(agent, dict) and str(agent.get("isolation")).casefold() == "fresh":
            yield ERROR, f"Agents[{i}].Isolation is Fresh: it would not hear its manager."


def _agents(agents: Any) -> _Found:
    if not isinstance(agents, list) or not agents:
        yield WARNING, "It has no agents: fuseraft does not start without one."
        return
    names = [str((a or {}).get("name") or "") if isinstance(a, dict) else "" for a in agents]
    for i, agent in enumerate(agents):
        if not names[i] and not (isinstance(agent, dict) and agent.get("agentfile")):
            yield ERROR, f"Agents[{i}] has no Name."
        choice = agent.get("functionchoice") if isinstance(agent, dict) else None
        if choice is not None and str(choice).casefold() not in _CHOICES:
            yield ERROR, f"Agents[{i}].FunctionChoice is one of {', '.join(_CHOICES)}."
        trust = agent.get("trustscore") if isinstance(agent, dict) else None
        if trust is not None and not (isinstance(trust, (int, float)) and 0 <= trust <= 1):
            yield ERROR, f"Agents[{i}].TrustScore lies between 0 and 1."
    folded = [n.casefold() for n in names if n]
    for name in dict.fromkeys(n for n in folded if folded.count(n) > 1):
        yield ERROR, f"Two agents are called {plain(name, 60)!r}."


def _folded(value: Any, depth: int = 6) -> Any:
    """Return sections with their keys in lower case, as fuseraft takes them in any."""
    if isinstance(value, dict) and depth:
        return {str(k).casefold(): _folded(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list) and depth:
        return [_folded(v, depth - 1) for v in value[:500]]
    return value
