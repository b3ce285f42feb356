"""Validation of the config files of agents that have a preset (`ctxkit.validate`): a frame of
errors and warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkit._internal.data_frame_display import DisplayColumn, FramePreviewRenderer, with_display
from ctxkit._internal.formatting_and_sanitizing import pluralize, sanitize_text
from ctxkit._internal.setting_value_validation import PROPORTION
from ctxkit.errors import CtxkitError
from ctxkit.metrics.frames.frame_column import TEXT, FrameColumn
from ctxkit.metrics.frames.typed_frame_builder import build_frame
from ctxkit.presets import config_text_reading_and_writing
from ctxkit.presets.config_key_mapping import get_section
from ctxkit.presets.fuseraft_config import find_budget_faults
from ctxkit.presets.rules_from_config_files import (
    describe_unrepresented_keys,
    detect_system_config_file,
    get_system_config_file,
    parse_rules,
)

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
    frame = build_frame(
        FAULT_COLUMNS, {c.name: [row[i] for row in rows] for i, c in enumerate(FAULT_COLUMNS)}
    )
    columns = tuple(DisplayColumn(c.name, c.name) for c in FAULT_COLUMNS)
    return with_display(frame, FramePreviewRenderer(columns, _describe_faults))


def _describe_faults(frame: pd.DataFrame) -> str:
    errors_n = int((frame["level"] == LEVEL_ERROR).sum())
    warnings_n = len(frame) - errors_n
    if frame.empty:
        return "No fault was found: the system would start with these settings."
    warnings = pluralize(warnings_n, "warning")
    if not errors_n:
        return f"The system would start; {warnings}: a setting does not act as it is meant."
    return f"The system would not start: {pluralize(errors_n, 'error')}, {warnings}."


def _find_faults(path: str | Path | Mapping[str, str], system: str | None) -> _Faults:
    # parsing the rules checks each key
    try:
        _, parsed, place = parse_rules(path, system)
    except CtxkitError as error:
        yield LEVEL_ERROR, sanitize_text(str(error), 600)
    else:
        sentences = " ".join(describe_unrepresented_keys(parsed, faults_only=True))
        if sentences:
            yield LEVEL_WARNING, sanitize_text(f"{place}: {sentences}", 600)
    try:
        content = (
            dict(path)
            if isinstance(path, Mapping)
            else config_text_reading_and_writing.load_config(path)[0]
        )
        config = (
            get_system_config_file(system)
            if system
            else detect_system_config_file(content, str(path))
        )
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
    yield from ((LEVEL_ERROR, why) for why in find_budget_faults(body))
    cutover = _get(body, "ContextBudget.CutoverAt")
    cutover = cutover if isinstance(cutover, int) else 0
    turn = _get(body, "WarnTurnTokens")
    if cutover and isinstance(turn, int) and turn >= cutover:
        problem = f"WarnTurnTokens ({turn:,}) is no less than CutoverAt ({cutover:,})"
        yield LEVEL_WARNING, f"{problem}: it warns too late."
    tracked = (
        get_section(body, "changetracking.path"),
        get_section(body, "validation.changelogpath"),
    )
    if all(tracked) and tracked[0] != tracked[1]:
        yield LEVEL_ERROR, "ChangeTracking.Path and Validation.ChangeLogPath must be the same file."
    yield from _find_missing_mode_parts(body)
    yield from _find_agent_faults(body.get("agents"))
    if str(get_section(body, "selection.type")).casefold() == "magentic":
        yield from _find_fresh_agents(body.get("agents"))


def _find_missing_mode_parts(body: Any) -> _Faults:
    """Yield a warning where fuseraft's mode of compaction lacks a section that it requires."""
    mode = str(_get(body, "Compaction.Mode")).casefold()
    missing = []
    if mode == "intent" and _get(body, "ChangeTracking") is None:
        missing = ["ChangeTracking"]
    elif mode in ("lossless", "hybrid"):
        if str(get_section(body, "selection.type")).casefold() != "statemachine":
            missing.append("Selection.Type statemachine")
        if _get(body, "EvidenceStore") is None:
            missing.append("EvidenceStore")
    if missing:
        why = (
            f"Compaction.Mode {mode} requires {' and '.join(missing)}: fuseraft takes another mode"
        )
        yield LEVEL_WARNING, f"{why} without. Here it holds and goes by the record of the session."


def _find_fresh_agents(agents: Any) -> _Faults:
    """Yield a fault for each agent of a manager that is isolated from the manager's messages."""
    for i, agent in enumerate(agents if isinstance(agents, list) else ()):
        if str(_get(agent, "Isolation")).casefold() == "fresh":
            yield LEVEL_ERROR, f"Agents[{i}].Isolation is Fresh: it would not hear its manager."


def _find_agent_faults(agents: Any) -> _Faults:
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


def _lower_case_keys(value: Any, depth: int = 6) -> Any:
    """Return sections with lower-case keys, since fuseraft ignores the case of keys."""
    if isinstance(value, dict) and depth:
        return {str(k).casefold(): _lower_case_keys(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list) and depth:
        return [_lower_case_keys(v, depth - 1) for v in value[:500]]
    return value
