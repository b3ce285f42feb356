"""A team's plan: members, states, transitions, contracts, conditions, failure handling."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit._internal.setting_value_validation import FLAG
from ctxkit.errors import BadArguments
from ctxkit.presets.config_key_mapping import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.presets.config_key_mapping import ConfigSection


FailureKind = Literal["MissingEvidence", "InvalidTransition", "ConflictingEvidence", "NoProgress"]
FailureAction = Literal["Reinstruct", "ActivateRecovery", "EscalateToHuman", "Abort"]
FAILURE_KINDS: tuple[FailureKind, ...] = (
    "MissingEvidence", "InvalidTransition", "ConflictingEvidence", "NoProgress",
)  # fmt: skip
FAILURE_ACTIONS: tuple[FailureAction, ...] = (
    "Reinstruct", "ActivateRecovery", "EscalateToHuman", "Abort",
)  # fmt: skip
MAX_SILENT_TURNS = 3
"""Consecutive turns of a state without one clear signal after which the team stops."""
MAX_CONTRACT_FAILURES = 4
"""Consecutive failures of a contract after which the team stops."""
RECOVERY_AFTER = 2
"""Consecutive failures of a contract before the recovery agent has a turn (fuseraft's number)."""
_CONFLICT_ENDINGS = ("failed", "holds an assertion", "as not passed")
"""End of a message about evidence that contradicts a claim."""


@dataclass(frozen=True, kw_only=True)
class FailureActionsAndLimits:
    """Limits on turns without a signal and on failed contracts."""

    max_silent_turns: int = MAX_SILENT_TURNS
    max_contract_failures: int = MAX_CONTRACT_FAILURES
    by_kind: dict[str, tuple[FailureAction, int]] = field(default_factory=dict)
    """For each kind of failure the action, and the most consecutive failures; 0: the value of
    `max_contract_failures`."""

    def stops(self, kind: FailureKind, count: int) -> bool:
        """Return True if a number of consecutive failures stops the team.

        Args:
            kind: kind of the last failure.
            count: failures in a row.
        """
        action, most = self.by_kind.get(kind, ("Reinstruct", 0))
        return action == "EscalateToHuman" or count >= (most or self.max_contract_failures)

    def recovers(self, kind: FailureKind, count: int) -> bool:
        """Return True if the recovery agent has a turn now, if there is one.

        Args:
            kind: kind of the last failure.
            count: failures in a row.
        """
        action, _ = self.by_kind.get(kind, ("Reinstruct", 0))
        return action == "ActivateRecovery" or count >= RECOVERY_AFTER


@dataclass(frozen=True, kw_only=True)
class VerifierPlan:
    """An agent that checks at intervals whether claims and evidence agree."""

    agent: str
    interval_turns: int = 0
    """Turns of the other agents between two checks; 0: only after suspicious failures."""
    checks_after_failures: bool = True
    """Also check after a failure of the kind ConflictingEvidence or NoProgress."""
    finding_keyword: str = "INCONSISTENCY"
    """A reply with this word is a finding, which goes to the next agent."""

    def is_due(self, turns: int, kind: object) -> bool:
        """Return True if the verifier has a turn now.

        Args:
            turns: number of concluded turns.
            kind: kind of the last turn's failure; None: it did not fail.
        """
        odd = self.checks_after_failures and kind in ("ConflictingEvidence", "NoProgress")
        return odd or (self.interval_turns > 0 and turns % self.interval_turns == 0)


def classify_contract_failure(
    missing: Sequence[str], *, failed_before: bool, used_tools: bool
) -> FailureKind:
    """Return the kind of a failure.

    Args:
        missing: sentences on unmet requirements.
        failed_before: the contract failed in the turn before, too.
        used_tools: the agent called a tool in this turn.

    Returns:
        `NoProgress` for a second failure without any tool call; else whether the evidence is
        missing or contradicts what was claimed.
    """
    if failed_before and not used_tools:
        return "NoProgress"
    # contradicting evidence takes precedence over missing evidence
    against = any(why.endswith(_CONFLICT_ENDINGS) for why in missing)
    return "ConflictingEvidence" if against else "MissingEvidence"


def parse_failure_limits(section: ConfigSection) -> FailureActionsAndLimits:
    """Return the limits in a section `FailureHandling`.

    Args:
        section: the section; it may be empty.

    Returns:
        The limits, with fuseraft's defaults for what the section leaves out.

    Raises:
        BadArguments: an `Action` is none of `FAILURE_ACTIONS`.
    """
    rules_by_kind = dict[str, tuple[FailureAction, int]]()
    for kind in FAILURE_KINDS:
        if section.get(kind) is None:
            continue
        row = section.section(kind)
        actions = {a.casefold(): a for a in FAILURE_ACTIONS}
        action = actions.get((row.text("Action") or "Reinstruct").casefold())
        if action is None:
            raise BadArguments(
                f"FailureHandling.{kind}.Action is {sanitize_text(row.text('Action'), 40)!r}; "
                "there are "
                f"{join_names(FAILURE_ACTIONS)}."
            )
        rules_by_kind[kind] = action, row.number("Threshold")
    return FailureActionsAndLimits(
        max_silent_turns=section.number("MaxConsecutiveTurnsWithoutSignal") or MAX_SILENT_TURNS,
        max_contract_failures=section.number("MaxConsecutiveContractFailures")
        or MAX_CONTRACT_FAILURES,
        by_kind=rules_by_kind,
    )


def parse_verifier(body: ConfigSection, names: Sequence[str]) -> VerifierPlan | None:
    """Return the verifier of a config's section `Verifier`; None: there is none.

    Args:
        body: the config's body, in which `Verifier` may be missing.
        names: names of the team's agents.

    Returns:
        The verifier and its intervals, in turns of the team.

    Raises:
        BadArguments: `AgentName` is no agent of the team.
    """
    if body.get("Verifier") is None:
        return None
    f = body.section("Verifier")
    agent_name = f.text("AgentName")
    agent = next((n for n in names if n.casefold() == agent_name.casefold()), None)
    if agent is None:
        raise BadArguments(
            f"Verifier.AgentName is {sanitize_text(agent_name, 60)!r}, and there are "
            f"{join_names(names)}."
        )
    return VerifierPlan(
        agent=agent,
        interval_turns=f.number("EveryNTurns"),
        checks_after_failures=f.read("TriggerOnSuspiciousTransition", FLAG, default=True),
        finding_keyword=f.text("FindingsKeyword") or VerifierPlan.finding_keyword,
    )


Isolation = Literal["shared", "fresh", "fork", "sealed"]
"""`sealed` sees neither other agents nor the task: a critic of an adversarial selection."""
TurnOrder = Literal["statemachine", "roundrobin", "sequential"]

SOURCE_CHARS, OWN_HISTORY_CHARS = 4_000, 8_000
"""Default limit of a source in characters (fuseraft's number)."""


@dataclass(frozen=True, kw_only=True)
class ContextSource:
    """A source of a context that is assembled from files."""

    kind: str
    """`session_context`, `changes_recent`, `brief_field`, `file` or `own_history`."""
    argument: str = ""
    max_chars: int = SOURCE_CHARS
    label: str = ""

    @property
    def name(self) -> str:
        """Its name in a config."""
        return f"{self.kind}:{self.argument}" if self.argument else self.kind


@dataclass(frozen=True, kw_only=True)
class SubAgentPlan:
    """An agent that works for another as its tool."""

    model: str = ""
    """The config's name for the model; empty: its agent's model."""
    tools: tuple[str, ...] = ("files",)
    max_calls: int | None = None


@dataclass(frozen=True, kw_only=True)
class ToolCapabilities:
    """Rights of an agent's tools by its `Capabilities`; an unnamed plugin has all rights."""

    may_write: bool = True
    may_run: bool = True


@dataclass(frozen=True, kw_only=True)
class Member:
    """One agent of a team."""

    name: str
    instructions: str = ""
    model: str = ""
    """The config's name for the model; empty: the team's model."""
    tools: tuple[str, ...] = ("files",)
    handoff: bool = False
    """True if it may also hand off by a tool call."""
    isolation: Isolation = "shared"
    context: tuple[ContextSource, ...] = ()
    """Declared sources; if there are any, it sees only these and its own turns."""
    rules: Rules
    view_keys: dict[str, Any] = field(default_factory=dict)
    """The config's keys for its view of the other agents."""
    sub_agent: SubAgentPlan | None = None
    """Its sub-agent; None: it has none."""
    message_cap: int = 0
    """Messages that its view keeps; 0: all."""
    warning_share: float = 0.0
    """Share of `message_cap` from which an event warns; 0: never."""
    max_calls: int | None = None
    """Model calls in one turn; None: the default limit."""
    capabilities: ToolCapabilities = field(default_factory=ToolCapabilities)
    reads_changes: bool = False
    """True if it has the tools that read the change log."""
    remembers: bool = False
    """True if its memory is in the prompt from the start of its session."""


@dataclass(frozen=True, kw_only=True)
class ContractRequirement:
    """A requirement of a contract."""

    kind: Literal["FileExists", "FilesWritten", "CommandSucceeded", "TestReport",
                  "ChecklistComplete", "RelatedTestsPass", "Brief"]  # fmt: skip
    path: str = ""
    field: str = ""
    pattern: str = ""
    no_failures: bool = False
    has_assertions: bool = False
    this_turn: bool = False
    """True if only the turn that hands off counts."""


@dataclass(frozen=True, kw_only=True)
class HandoffContract:
    """Requirements that must hold before a hand-off."""

    name: str
    requires: tuple[ContractRequirement, ...]


@dataclass(frozen=True, kw_only=True)
class Transition:
    """A transition to another state."""

    to: str
    signal: str = ""
    """Empty: it is taken if no other transition is."""
    when: JsonCondition | None = None
    """Condition on the reply's JSON; None: the signal decides."""
    contracts: tuple[HandoffContract, ...] = ()
    source_agents: tuple[str, ...] = ()
    recovery: str = ""
    """The agent that has one turn after two consecutive failures of the contracts."""
    handoff: tuple[ContextSource, ...] = ()
    max_revisits: int = 0
    """How often it may lead to a state visited before; 0: no limit."""
    objections_file: str = ""
    """File with the objections that are sent when `max_revisits` is reached."""
    targets: tuple[str, ...] = ()
    """States whose agents each have a turn first, unseen by the others (fuseraft's Parallel)."""


@dataclass(frozen=True, kw_only=True)
class StateDefinition:
    """A state of the work and its agent."""

    name: str
    agent: str = ""
    terminal: bool = False
    transitions: tuple[Transition, ...] = ()
    quoted_agent: str = ""
    """The agent whose last reply is quoted in the prompt; empty: none."""
    item_list_path: str = ""
    """Path of a list in that reply's JSON; each turn here gets one item."""
    split_list_path: str = ""
    """Path in the reply's JSON of the list whose items are processed next."""

    @property
    def is_final(self) -> bool:
        """True if the team ends in this state."""
        return self.terminal or not self.transitions


@dataclass(frozen=True, kw_only=True)
class ReplyStopCondition:
    """A condition on replies that ends the team: a regular expression, or one on their JSON."""

    pattern: str = ""
    agents: tuple[str, ...] = ()
    """Agents whose replies count; empty: all."""
    when: JsonCondition | None = None


@dataclass(frozen=True, kw_only=True)
class ManagerStallLimits:
    """Limits on a manager's rounds without progress."""

    name: str
    stalls: int
    """Rounds without progress after which it makes a new plan."""
    resets: int
    """New plans after which the team stops."""


@dataclass(frozen=True)
class WritableFiles:
    """The files that file tools may write, as globs below the team's folder; none: all files.

    `*` and `?` stay within a name, `**` reaches over folders.
    """

    globs: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        """Return True if a path below the folder may be written."""
        parts = path.split("/")
        return not self.globs or any(_matches(glob.split("/"), parts) for glob in self.globs)


@dataclass(frozen=True, kw_only=True)
class TeamPlan:
    """The plan of a team."""

    name: str = "team"
    members: tuple[Member, ...]
    order: TurnOrder = "roundrobin"
    initial: str = ""
    branches: tuple[str, ...] = ()
    """States whose agents each have a turn before the first state."""
    states: dict[str, StateDefinition] = field(default_factory=dict)
    stops: tuple[ReplyStopCondition, ...] = ()
    manager: ManagerStallLimits | None = None
    failure_limits: FailureActionsAndLimits = field(default_factory=FailureActionsAndLimits)
    verifier: VerifierPlan | None = None
    max_turns: int = 40
    max_tokens: int | None = None
    """Tokens billed to all agents together."""
    warn_at: int = 0
    cutover_at: int = 0
    warn_turn: int = 300_000
    """Prompt tokens of one turn above which an event warns; 0: never."""
    summary_model: str = ""
    """The config's name for the model that writes summaries; empty: each agent's own."""
    brief_path: str = "brief.json"
    report_path: str = "test-report.json"
    memory: dict[str, Any] = field(default_factory=dict)
    """The config's section `Memory`: providers loaded before each turn; empty: none."""
    envelope: WritableFiles = field(default_factory=WritableFiles)
    """Files that agents may write."""
    test_commands: tuple[str, ...] = ()
    """Commands that run the tests, all or those of a file."""
    assertions: tuple[str, ...] = (r"\bassert", r"\bexpect\b")
    """Patterns of assertions, of which a test file must contain one."""
    notes: tuple[str, ...] = ()
    """Sentences on what of the config has no effect here."""

    def member(self, name: str) -> Member:
        """Return an agent by its name, without case."""
        return next(m for m in self.members if m.name.casefold() == name.casefold())


def make_stored_plan_details(plan: TeamPlan) -> dict[str, Any]:
    """Return the part of the plan that the ledger stores: names, views, thresholds.

    Args:
        plan: the plan of the team.

    Returns:
        JSON values for the details of the team's session; empty ones are left out.
    """
    views = {m.name: m.view_keys for m in plan.members if m.view_keys}
    limits = {"warn_at": plan.warn_at, "cutover_at": plan.cutover_at}
    settings = {"views": views, **limits}
    return {"team": [m.name for m in plan.members], **{k: v for k, v in settings.items() if v}}


CONDITION_OPERATORS = ("Is", "IsNot", "Contains", "Exists")
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
_MAX_REPLY_CHARS = 200_000
"""Characters of a reply that are searched."""


@dataclass(frozen=True, kw_only=True)
class JsonCondition:
    """A condition on one field of a JSON object."""

    field: str
    """Names joined by dots, the outermost first."""
    operator: str
    value: str | bool

    def matches(self, record: dict[str, Any]) -> bool:
        """Return True if an object meets the condition; case is ignored."""
        value: Any = record
        for name in self.field.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if self.operator == "Exists":
            return (value is not None) is self.value
        text_of_value = value if isinstance(value, str) else json.dumps(value)
        text, expected = text_of_value.strip().casefold(), str(self.value).strip().casefold()
        if self.operator == "Contains":
            return value is not None and expected in text
        return (value is not None and text == expected) is (self.operator == "Is")


def parse_condition(section: ConfigSection, where: str) -> JsonCondition:
    """Return the condition of a section `Field` and one of `Is`, `IsNot`, `Contains`, `Exists`.

    Args:
        section: the section `Condition`.
        where: the route that it belongs to, for the error's sentence.

    Returns:
        The condition; numbers are compared as text, `Exists` takes a yes or no.

    Raises:
        BadArguments: it names no field, or not exactly one operator.
    """
    operators = [o for o in CONDITION_OPERATORS if section.get(o) is not None]
    if not section.text("Field") or len(operators) != 1:
        raise BadArguments(
            f"{where} needs a Condition: a Field and one of {', '.join(CONDITION_OPERATORS)}."
        )
    (name,) = operators
    value = section.get(name)
    if name == "Exists" or isinstance(value, bool):
        return JsonCondition(field=section.text("Field"), operator=name, value=section.flag(name))
    return JsonCondition(field=section.text("Field"), operator=name, value=section.text(name))


def find_json_object(reply: str) -> dict[str, Any] | None:
    """Return the JSON object of a reply: all, a fence's, or first to last brace; else None.

    Args:
        reply: text of an agent, with or without prose around the object.

    Returns:
        The first object found in that order.

    Example:
        >>> from ctxkit.teams.team_definition import find_json_object
        >>> find_json_object('Decision: {"next": "Tester"} as agreed.')
        {'next': 'Tester'}
    """
    for text in _json_candidates(reply[:_MAX_REPLY_CHARS]):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _json_candidates(reply: str) -> Iterator[str]:
    yield reply
    yield from _FENCED.findall(reply)
    yield reply[reply.find("{") : reply.rfind("}") + 1]


PATTERN_SECONDS = 1.0
"""Seconds for one search: some patterns take forever on a model's text."""


def check_pattern(text: str, where: str) -> str:
    """Return a regular expression that can be searched for.

    Args:
        text: the expression, in the syntax of the package `regex`.
        where: its place in the config, for the error's sentence.

    Returns:
        The expression as it is.

    Raises:
        BadArguments: it is not valid; the sentence says where it is in the config.
    """
    import regex  # type: ignore[import-untyped]  # comes with tiktoken

    try:
        regex.compile(text)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as e:
        why = sanitize_text(str(e), 120)
        raise BadArguments(
            f"{where}: {sanitize_text(text, 60)!r} is no regular expression ({why})."
        ) from None
    return text


def matches_any(patterns: Iterable[str], text: str) -> bool:
    """Return True if one of several regular expressions matches in a text.

    Args:
        patterns: regular expressions, checked by `check_pattern`.
        text: a reply; they are searched for anywhere in it.

    Returns:
        False without patterns.

    Raises:
        BadArguments: a search takes longer than a second.
    """
    # unlike `re`, this one takes a time limit
    import regex

    for pattern in patterns:
        try:
            match: Any = regex.search(pattern, text, timeout=PATTERN_SECONDS)
        except TimeoutError:
            raise BadArguments(
                f"The config's regular expression {sanitize_text(pattern, 60)!r} takes longer than "
                f"{PATTERN_SECONDS:g} s in a text: write it simpler, and let the team go on."
            ) from None
        if match:
            return True
    return False


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
