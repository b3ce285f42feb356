"""Validation of the config files of other systems (`ctxkit.validate`)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
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
_CHOICES = ("auto", "required", "none")
_Faults = Iterator[tuple[str, str]]


def validate(path: str | Path | Mapping[str, str], *, system: str | None = None) -> pd.DataFrame:
    """Check a config file of another system and list its faults.

    Args:
        path: a file, or variables by name, as `load_rules` takes it.
        system: the name of the system that the file belongs to; None: detected by its keys.

    Returns:
        One row per fault, errors first, without duplicates; empty for a valid file. Columns:
        `level` (``"error"``: the system would not start; ``"warning"``: it runs, but not as
        meant) and `why` (a sentence).

    Example:
        >>> import ctxkit as ck
        >>> ck.validate({"COMPACT_TRIGGER": "many"}, system="pulse_coder")["level"].tolist()
        ['error']
    """
    rows = list(dict.fromkeys(_find_faults(path, system)))
    rows.sort(key=lambda row: row[0] != LEVEL_ERROR)
    return build_frame(
        FAULT_COLUMNS, {c.name: [row[i] for row in rows] for i, c in enumerate(FAULT_COLUMNS)}
    )


def _find_faults(path: str | Path | Mapping[str, str], system: str | None) -> _Faults:
    # Loading the rules checks each key; its warnings and its error become rows.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            load_rules(path, system=system)
        except CtxkitError as error:
            yield LEVEL_ERROR, sanitize_text(str(error), 600)
    for warning in caught:
        yield LEVEL_WARNING, sanitize_text(str(warning.message), 600)
    try:
        content = dict(path) if isinstance(path, Mapping) else config_syntax.load_config(path)[0]
        config = config_format(system) if system else detect_config_format(content, str(path))
    except CtxkitError:
        return  # load_rules raised the same error above
    # only fuseraft refuses files for rules across sections
    if config.system == "fuseraft":
        yield from _find_fuseraft_faults(_lower_case_keys(content.get("Orchestration", content)))


def _find_fuseraft_faults(body: Any) -> _Faults:
    """Yield faults across sections of fuseraft's file, which the rules of one agent do not show."""
    if not isinstance(body, dict):
        yield LEVEL_ERROR, "Orchestration must be a section of keys and values."
        return
    limits = {k: get_section(body, f"contextbudget.{k}") for k in ("warnat", "cutoverat")}
    cutover = limits["cutoverat"] if isinstance(limits["cutoverat"], int) else 0
    single = get_section(body, "contextbudget.maxsingleturninputtokens")
    for name, value in (("CutoverAt", cutover), ("MaxSingleTurnInputTokens", single)):
        if value and "compaction" not in body:
            why = f"ContextBudget.{name} cannot fire without a Compaction section: add one."
            yield LEVEL_ERROR, why
    turn = body.get("warnturntokens")
    if cutover and isinstance(turn, int) and turn >= cutover:
        problem = f"WarnTurnTokens ({turn:,}) is no less than CutoverAt ({cutover:,})"
        yield LEVEL_WARNING, f"{problem}: it warns too late."
    tracked = (
        get_section(body, "changetracking.path"),
        get_section(body, "validation.changelogpath"),
    )
    if all(tracked) and tracked[0] != tracked[1]:
        yield LEVEL_ERROR, "ChangeTracking.Path and Validation.ChangeLogPath must be the same file."
    mode = str(get_section(body, "compaction.mode")).casefold()
    if mode == "intent" and "changetracking" not in body:
        yield LEVEL_WARNING, "Compaction.Mode intent falls back to a model without ChangeTracking."
    yield from _find_agent_faults(body.get("agents"))
    if str(get_section(body, "selection.type")).casefold() == "magentic":
        yield from _find_fresh_agents(body.get("agents"))


def _find_fresh_agents(agents: Any) -> _Faults:
    """Yield a fault for each agent of a manager that is isolated from the manager's messages."""
    for i, agent in enumerate(agents if isinstance(agents, list) else ()):
        if isinstance(agent, dict) and str(agent.get("isolation")).casefold() == "fresh":
            yield LEVEL_ERROR, f"Agents[{i}].Isolation is Fresh: it would not hear its manager."


def _find_agent_faults(agents: Any) -> _Faults:
    if not isinstance(agents, list) or not agents:
        yield LEVEL_WARNING, "It has no agents: fuseraft does not start without one."
        return
    names = [str((a or {}).get("name") or "") if isinstance(a, dict) else "" for a in agents]
    for i, agent in enumerate(agents):
        if not names[i] and not (isinstance(agent, dict) and agent.get("agentfile")):
            yield LEVEL_ERROR, f"Agents[{i}] has no Name."
        choice = agent.get("functionchoice") if isinstance(agent, dict) else None
        if choice is not None and str(choice).casefold() not in _CHOICES:
            yield LEVEL_ERROR, f"Agents[{i}].FunctionChoice is one of {', '.join(_CHOICES)}."
        trust = agent.get("trustscore") if isinstance(agent, dict) else None
        if trust is not None and not (isinstance(trust, (int, float)) and 0 <= trust <= 1):
            yield LEVEL_ERROR, f"Agents[{i}].TrustScore lies between 0 and 1."
    folded = [n.casefold() for n in names if n]
    for name in dict.fromkeys(n for n in folded if folded.count(n) > 1):
        yield LEVEL_ERROR, f"Two agents are called {sanitize_text(name, 60)!r}."


def _lower_case_keys(value: Any, depth: int = 6) -> Any:
    """Return sections with lower-case keys, since fuseraft ignores the case of keys."""
    if isinstance(value, dict) and depth:
        return {str(k).casefold(): _lower_case_keys(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list) and depth:
        return [_lower_case_keys(v, depth - 1) for v in value[:500]]
    return value
