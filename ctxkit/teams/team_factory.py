"""`ck.team`: a team made of a config, and the files that the config names."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit._internal.safe_files import expand_home
from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace, check_session_name
from ctxkit.agent.session_settings_seal_and_changes import read_session_settings
from ctxkit.agent.tools import confined_root
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.agent.turn_limits_and_token_budgets import Limits
from ctxkit.agent.turn_state_and_events import ignore_event
from ctxkit.errors import BadArguments, CtxkitError, StoreError
from ctxkit.presets import config_text_reading_and_writing
from ctxkit.presets.config_key_mapping import ConfigSection
from ctxkit.presets.fuseraft_config import check_team_counts, get_orchestration_or_whole_config
from ctxkit.teams.fuseraft_config import parse_plan
from ctxkit.teams.live_team_sessions import SessionFactory, describe_missing_grants
from ctxkit.teams.runner import Team
from ctxkit.teams.scripted_teams import (
    SCRIPTED_CONFIG,
    is_team_script_name,
    make_script_models,
    make_scripted_team,
)
from ctxkit.teams.sub_agents_and_permissions import extend_envelope_from_brief

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ctxkit.agent.models.model import Model
    from ctxkit.agent.tools.execution_and_results import Approve
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.agent.turn_state_and_events import Listener
    from ctxkit.teams.team_definition import TeamPlan


def team(
    config: str | Path | Mapping[str, Any] | None = None,
    *,
    name: str = "team",
    model: Model | str = "",
    models: Mapping[str, Model | str] | None = None,
    tools: Sequence[str | Tool] | None = None,
    root: str | Path | None = None,
    allow: Sequence[str] | None = None,
    limits: Limits | None = None,
    approve: Approve | None = None,
    sections: str = "",
    memory: Sequence[str] | None = None,
    listener: Listener = ignore_event,
    folder: str | Path | None = None,
    clock: Callable[[], float] = time.time,
    seed: str = "",
    words: Mapping[str, Any] | None = None,
) -> Team:
    """Return a team of agents that take turns on one task; `team.run(task)` runs it.

    A config has the keys of fuseraft's orchestration file: `Agents` with their own model, tools,
    instructions, `ContextWindow` or `Context`, `Isolation`; `Selection` (statemachine, roundrobin,
    sequential, keyword, structured, graph, magentic, llm, adversarial, scattergather, mapreduce);
    `Contracts`, `FailureHandling`, `Verifier`, `Termination`, `ContextBudget`, `Compaction`,
    `Memory`. `team.notes` lists the keys that have no effect.

    Args:
        config: the config, the path of such a file (YAML or JSON), or `"scripted"`: a team that
            needs no key, and really writes and tests a small program. None: the team of that name
            continues, with the tools, the folder and the models with which it was opened.
        name: name of the team; an existing team continues.
        model: model of all agents, instead of those in the config; `scripted`: a script that
            follows from the config, without a key; `scripted:FILE`: a script from a file (see
            `teams.scripted_teams`).
        models: models by an agent's name, or by the config's name for a model.
        tools: the most that agents may have: `files`, `document`, `shell`, `python`, your own
            tools; None: `files`. A config alone never grants a shell.
        root: the folder in which all agents work; None: a scratch folder of the team.
        allow: protected names that their tools may write, such as `.fuseraft`.
        limits: limits of each turn of each agent.
        approve: called before each tool call; it decides whether the tool runs.
        sections: further sections of each agent's system message, as `%%agent --sections` names
            them (`on`: all); empty: its instructions, the `.gitignore` of `root` and the index of
            the context store where there are any, and its memory where the config sets
            `EnableMemory` or `Memory`.
        memory: memory beyond the team's own, for a config with `Memory` or `EnableMemory`:
            `user` (your memory of agents with these names, which fuseraft shares), `webhook`.
        listener: called with every event of every agent.
        folder: the working folder, in whose `.ctxkit` the team is stored; None: the current one.
        clock: returns seconds since 1970.
        seed: seed of all ids; empty: random ids.
        words: further settings, stored with the team.

    Returns:
        The team; it holds the lock of its sessions until `close()`, or the end of a `with` block.

    Raises:
        BadArguments: the config cannot work; the sentence says where.
        ReadError: the file cannot be read.
        StoreError: another process runs the team.

    Example:
        >>> import ctxkit as ck
        >>> ck.team("scripted")
        <Team team: Planner, Developer, Tester, Reviewer; 0 turns; Planning>
    """
    workspace = Workspace(folder)
    if config is None:
        before = read_team_settings(workspace, name)
        config, model = before["config"], model or before["model"]
        models = models or before["models"]
        tools = before["tools"] if tools is None else tools
        root, allow = root or before["root"] or None, before["allow"] if allow is None else allow
        sections = sections or before.get("sections", "")
        memory = before.get("memory", ()) if memory is None else memory
    tools, allow = ("files",) if tools is None else tuple(tools), tuple(allow or ())
    memory = tuple(memory or ())
    models_by_name, named = dict(models or {}), config
    if config == SCRIPTED_CONFIG:
        config, played = make_scripted_team(clock)
        models_by_name, tools = (
            {**played, **models_by_name},
            ("files", "shell") if tools == ("files",) else tools,
        )
    body = _load_team_config(config)
    plan = parse_plan(body)
    root_folder = RootFolder(root, allow) if root else _make_scratch_root(workspace, name, allow)
    envelope = extend_envelope_from_brief(
        plan.envelope, get_orchestration_or_whole_config(body), root_folder
    )
    plan = replace(plan, envelope=envelope)
    if is_team_script_name(model):
        models_by_name = {**make_script_models(str(model), plan, clock), **models_by_name}
    sessions = SessionFactory(
        plan, models=models_by_name, model=model, tools=tools, root=root_folder, allow=allow,
        clock=clock, limits=limits or Limits(), approve=approve, listener=listener, seed=seed,
        sections=sections, memory=memory,
    )  # fmt: skip
    settings = {
        "config": SCRIPTED_CONFIG if named == SCRIPTED_CONFIG else body,
        "model": _model_name(model),
        "models": {k: m for k, m in models_by_name.items() if isinstance(m, str)},
        "tools": [t for t in tools if isinstance(t, str)],
        "root": str(root or ""),
        "allow": list(allow),
        "sections": sections,
        "memory": list(memory),
        **(words or {}),
    }
    opened_team = Team(
        plan, sessions, name=name, workspace=workspace, clock=clock, seed=seed, words=settings
    )
    opened_team.notes = (
        *plan.notes,
        *describe_missing_grants(plan, tools, memory),
        *describe_protected_files(plan, allow),
    )
    return opened_team


def _load_team_config(config: Any) -> dict[str, Any]:
    """Return a config as plain values, with the files that it names and paths of this system."""
    if isinstance(config, (str, Path)):
        place = expand_home(config).parent
        content, _ = config_text_reading_and_writing.load_config(config)
        check_team_counts(content)
        config = load_referenced_files(content, place)
    if not isinstance(config, Mapping):
        raise BadArguments("A team is made of a config, the path of one, or 'scripted'.")
    body: dict[str, Any] = replace_home_fuseraft_paths(_to_plain_config(config))
    return body


def _to_plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(msgspec.to_builtins(dict(config)))
    except (RecursionError, TypeError, ValueError):
        raise BadArguments(
            "A team's config holds keys, texts, numbers, lists and sections, and none of these"
            " holds itself: give it the path of a file, or such a mapping."
        ) from None


def read_team_settings(workspace: Workspace, name: str) -> dict[str, Any]:
    """Return how a team of this user was opened last: config, model, models, tools, root, allow.

    Args:
        workspace: folder in which the team was opened.
        name: name of the team.

    Returns:
        The values by key, as `team` takes them; read only under this user's seal.

    Raises:
        BadArguments: there is no such team, or nothing is kept of it under the user's seal.
    """
    stored = read_session_settings(workspace.session(name))
    words = stored.words if stored is not None else {}
    if not words.get("config"):
        raise BadArguments(
            f"No team {name!r} was begun here by you: say which config it has, "
            f"ck.team('orchestration.yaml', name={name!r}), or 'scripted'."
        )
    return words


def _model_name(model: Model | str) -> str:
    return model if isinstance(model, str) else ""


def _make_scratch_root(workspace: Workspace, name: str, allow: Sequence[str]) -> RootFolder:
    """Return the team's own folder for its tools, made without following links."""
    workspace.make()
    place = workspace.scratch(check_session_name(name))
    with workspace.reach(place, make=0o777):
        return RootFolder(place, allow)


_INHERITED_VALUES: tuple[Any, ...] = (None, "", 0, "auto")
"""Values by which an agent's section says that its file's is meant, as fuseraft has it."""
_MAX_FILE_BYTES = 200_000


def load_referenced_files(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a config with what its files say in the places where they are named.

    Args:
        config: as it was read.
        folder: folder of its file.

    Raises:
        BadArguments: a file is not there, lies elsewhere, or holds no agent.
    """
    whole = ConfigSection(config)
    body = get_orchestration_or_whole_config(config)
    merged = {k: v for k, v in body.values.items() if k.casefold() != "systempromptpath"}
    root = RootFolder(folder)
    path = body.text("SystemPromptPath")
    if path:
        named = {k for k in merged if k.casefold() == "systemprompt"}
        merged = {k: v for k, v in merged.items() if k not in named}
        merged["SystemPrompt"] = _read_prompt_file(root, path)
    key = next((k for k in merged if k.casefold() == "agents"), None)
    if key is not None:
        merged[key] = [_load_agent(root, f) for f in body.rows("Agents")]
    if whole.get("Orchestration") is None:
        return merged
    name = next(k for k in whole if k.casefold() == "orchestration")
    return {**whole.values, name: merged}


def _load_agent(root: RootFolder, section: ConfigSection) -> dict[str, Any]:
    path = section.text("AgentFile")
    values = {k: v for k, v in section.values.items() if k.casefold() != "agentfile"}
    if not path:
        return values
    try:
        content, _ = config_text_reading_and_writing.load_config(root.resolve(path))
    except CtxkitError as e:
        raise BadArguments(f"AgentFile {sanitize_text(path, 120)}: {e}") from None
    base = ConfigSection(content)
    base = base if base.get("Agent") is None else base.section("Agent")
    named_keys = {
        k.casefold() for k, v in values.items() if v not in _INHERITED_VALUES and v not in ([], {})
    }
    return {**{k: v for k, v in base.values.items() if k.casefold() not in named_keys},
            **{k: v for k, v in values.items() if k.casefold() in named_keys}}  # fmt: skip


def _read_prompt_file(root: RootFolder, path: str) -> str:
    try:
        return root.read(path, _MAX_FILE_BYTES, whole=True).decode("utf-8", "replace")
    except StoreError as e:
        raise BadArguments(f"SystemPromptPath: {e}") from None


_PATH = re.compile(r"(?:~/)?\.fuseraft/[\w./{}-]*")
_TOKEN = re.compile(r"\{(?:session_id|project_slug)\}")


def replace_home_fuseraft_paths(config: Any) -> Any:
    """Return a config in which paths below `~/.fuseraft` are below the team's `.fuseraft`.

    Its tokens `{project_slug}/` and `{session_id}/` are left out: a team has one folder. Names that
    YAML takes for numbers are texts.
    """
    if isinstance(config, dict):
        return {str(k): replace_home_fuseraft_paths(v) for k, v in config.items()}
    if isinstance(config, list):
        return [replace_home_fuseraft_paths(v) for v in config]
    return _PATH.sub(_localise_path, config) if isinstance(config, str) else config


def _localise_path(match: re.Match[str]) -> str:
    path = match[0].removeprefix("~/")
    for token in ("{project_slug}/", "{session_id}/"):
        path = path.replace(token, "")
    return _TOKEN.sub("team", path)


def describe_protected_files(plan: TeamPlan, allow: Collection[str]) -> list[str]:
    """Return a sentence on the files that contracts ask for and that no agent may write.

    Args:
        plan: the team.
        allow: names of protected files that agents may write.

    Returns:
        One sentence, or none.
    """
    names = dict.fromkeys(p for p in _required_files(plan) if _is_protected(p, allow))
    if not names:
        return []
    first = sanitize_text(next(iter(names)), 120)
    protected = next((n for n in confined_root.PROTECTED_NAMES if n in first.split("/")), "")
    hint = f"allow=({protected!r},)" if protected else "allow="
    return [f"Its contracts ask for {first}, which agents may not write: {hint} lets them."]


def _is_protected(path: str, allow: Collection[str]) -> bool:
    try:
        confined_root.check_writable(path, path.split("/"), allow)
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
                    yield need.path or (
                        plan.report_path if need.kind == "TestReport" else plan.brief_path
                    )
