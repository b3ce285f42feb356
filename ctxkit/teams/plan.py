"""A team's plan: members, states, transitions, contracts, conditions, failure handling."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ctxkit._internal.formatting import sanitize_text
from ctxkit._internal.setting_types import FLAG
from ctxkit.errors import BadArguments
from ctxkit.presets.config_schema import join_names
from ctxkit.teams.permissions import Capabilities, ChangeEnvelope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.policies.context_rules import Rules
    from ctxkit.presets.config_schema import ConfigSection


FailureKind = Literal["MissingEvidence", "InvalidTransition", "ConflictingEvidence", "NoProgress"]
FailureAction = Literal["Reinstruct", "ActivateRecovery", "EscalateToHuman", "Abort"]
FAILURE_KINDS: tuple[FailureKind, ...] = (
    "MissingEvidence", "InvalidTransition", "ConflictingEvidence", "NoProgress",
)  # fmt: skip
FAILURE_ACTIONS: tuple[FailureAction, ...] = (
    "Reinstruct", "ActivateRecovery", "EscalateToHuman", "Abort",
)  # fmt: skip
MAX_SILENT_TURNS = 3
"""Turns in a row of one state without one clear signal, after which the team stops."""
MAX_CONTRACT_FAILURES = 4
"""Times in a row that a contract may fail before the team stops."""
RECOVERY_AFTER = 2
"""Times in a row that a contract fails before the agent for recovery gets a turn (fuseraft's)."""
_CONFLICT_ENDINGS = ("failed", "holds an assertion", "as not passed")
"""How the kit ends what it says of evidence that is there and speaks against the claim."""


@dataclass(frozen=True, kw_only=True)
class FailurePolicy:
    """How long a team continues without a signal, and with contracts that fail."""

    silent: int = MAX_SILENT_TURNS
    failed: int = MAX_CONTRACT_FAILURES
    of: dict[str, tuple[FailureAction, int]] = field(default_factory=dict)
    """By the kind of a failure: what is done, and how often in a row at most (0: as `failed`)."""

    def stops(self, kind: FailureKind, count: int) -> bool:
        """Say whether a contract that failed so often in a row stops the team."""
        action, most = self.of.get(kind, ("Reinstruct", 0))
        return action == "EscalateToHuman" or count >= (most or self.failed)

    def recovers(self, kind: FailureKind, count: int) -> bool:
        """Say whether the agent for recovery gets its turn, where there is one."""
        action, _ = self.of.get(kind, ("Reinstruct", 0))
        return action == "ActivateRecovery" or count >= RECOVERY_AFTER


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """An agent that looks, now and then, whether claims and evidence agree."""

    agent: str
    every: int = 0
    """After so many turns of the others; 0: only where something is odd."""
    suspicious: bool = True
    """After a failure that is ConflictingEvidence or NoProgress, too."""
    word: str = "INCONSISTENCY"
    """Where its reply holds this, the next agent is told of a finding."""

    def is_due(self, turns: int, kind: object) -> bool:
        """Say whether it looks after a turn: how many there were, the kind of its failure."""
        odd = self.suspicious and kind in ("ConflictingEvidence", "NoProgress")
        return odd or (self.every > 0 and turns % self.every == 0)


def classify_failure(missing: Sequence[str], *, again: bool, used_tools: bool) -> FailureKind:
    """Return the kind of a failure.

    Args:
        missing: in words, what a contract lacks.
        again: it failed the turn before, too.
        used_tools: the agent called a tool in this turn.
    """
    if again and not used_tools:
        return "NoProgress"
    # evidence that is there and speaks against the claim weighs more than missing evidence
    against = any(why.endswith(_CONFLICT_ENDINGS) for why in missing)
    return "ConflictingEvidence" if against else "MissingEvidence"


def parse_failure_policy(f: ConfigSection) -> FailurePolicy:
    """Return the policy of a section `FailureHandling`."""
    rules_by_kind = dict[str, tuple[FailureAction, int]]()
    for kind in FAILURE_KINDS:
        if f.get(kind) is None:
            continue
        row = f.section(kind)
        actions = {a.casefold(): a for a in FAILURE_ACTIONS}
        action = actions.get((row.text("Action") or "Reinstruct").casefold())
        if action is None:
            raise BadArguments(
                f"FailureHandling.{kind}.Action is {sanitize_text(row.text('Action'), 40)!r}; "
                "there are "
                f"{join_names(FAILURE_ACTIONS)}."
            )
        rules_by_kind[kind] = action, row.number("Threshold")
    return FailurePolicy(
        silent=f.number("MaxConsecutiveTurnsWithoutSignal") or MAX_SILENT_TURNS,
        failed=f.number("MaxConsecutiveContractFailures") or MAX_CONTRACT_FAILURES,
        of=rules_by_kind,
    )


def parse_verifier(body: ConfigSection, names: Sequence[str]) -> Verifier | None:
    """Return the verifier of a config's section `Verifier`; None: there is none."""
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
    return Verifier(
        agent=agent,
        every=f.number("EveryNTurns"),
        suspicious=f.read("TriggerOnSuspiciousTransition", FLAG, default=True),
        word=f.text("FindingsKeyword") or Verifier.word,
    )


Isolation = Literal["shared", "fresh", "fork", "sealed"]
"""`sealed` hears nobody, and is not told the task: a critic of an adversarial selection."""
TurnOrder = Literal["statemachine", "roundrobin", "sequential"]

SOURCE_CHARS, OWN_HISTORY_CHARS = 4_000, 8_000
"""Characters of a source unless it says how many (fuseraft's)."""


@dataclass(frozen=True, kw_only=True)
class ContextSource:
    """One source of a context that is put together from files."""

    kind: str
    """`session_context`, `changes_recent`, `brief_field`, `file` or `own_history`."""
    argument: str = ""
    max_chars: int = SOURCE_CHARS
    label: str = ""

    @property
    def name(self) -> str:
        """How it is written in a config."""
        return f"{self.kind}:{self.argument}" if self.argument else self.kind


@dataclass(frozen=True, kw_only=True)
class SubAgentPlan:
    """An agent that works for another as its tool."""

    model: str = ""
    """As the config names it; empty: that of the agent it works for."""
    tools: tuple[str, ...] = ("files",)
    max_calls: int | None = None


@dataclass(frozen=True, kw_only=True)
class Member:
    """One agent of a team."""

    name: str
    instructions: str = ""
    model: str = ""
    """As the config names it; empty: the team's."""
    tools: tuple[str, ...] = ("files",)
    handoff: bool = False
    """True where it may hand on by a tool call, too."""
    isolation: Isolation = "shared"
    context: tuple[ContextSource, ...] = ()
    """Declared sources; with any, it is shown them and its own turns, and nothing else."""
    rules: Rules
    view_keys: dict[str, Any] = field(default_factory=dict)
    """What it is shown of the others, in the config's own keys."""
    sub: SubAgentPlan | None = None
    """The agent that it can ask; None: none."""
    cap: int = 0
    """Messages that its window keeps; 0: all."""
    cap_fraction: float = 0.0
    """From which share of them on a turn is told as an event; 0: never."""
    max_calls: int | None = None
    """Calls to its model in one turn; None: the usual limit."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    reads_changes: bool = False
    """Whether it has the tools that read what the team changed."""
    remembers: bool = False
    """Whether what it remembers is put in when its session is opened."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One thing that must be there."""

    kind: Literal["FileExists", "FilesWritten", "CommandSucceeded", "TestReport",
                  "ChecklistComplete", "RelatedTestsPass", "Brief"]  # fmt: skip
    path: str = ""
    field: str = ""
    pattern: str = ""
    no_failures: bool = False
    has_assertions: bool = False
    this_turn: bool = False
    """Whether only what was done in the turn that hands on counts."""


@dataclass(frozen=True, kw_only=True)
class HandoffContract:
    """Things that must be there before a hand-off happens."""

    name: str
    requires: tuple[Requirement, ...]


@dataclass(frozen=True, kw_only=True)
class Transition:
    """A way out of a state."""

    to: str
    signal: str = ""
    """Empty: it is taken where the turn is over and no other is."""
    when: Condition | None = None
    """What the JSON of the reply must say; None: a signal says it."""
    contracts: tuple[HandoffContract, ...] = ()
    source_agents: tuple[str, ...] = ()
    recovery: str = ""
    """The agent that gets one turn when the contracts failed twice in a row."""
    handoff: tuple[ContextSource, ...] = ()
    max_revisits: int = 0
    """How often it may lead back; 0: as often as the team has turns."""
    review: str = ""
    """File whose text is said when it may not lead back once more."""
    targets: tuple[str, ...] = ()
    """States whose agents have a turn each before, none hearing another's (fuseraft's Parallel)."""


@dataclass(frozen=True, kw_only=True)
class TeamState:
    """A state of the work, and who works in it."""

    name: str
    agent: str = ""
    terminal: bool = False
    transitions: tuple[Transition, ...] = ()
    reads: str = ""
    """The agent whose last words its prompt brings; empty: nobody's."""
    item: str = ""
    """Where in the JSON of those words a list is, of which each turn here brings one item."""
    splits: str = ""
    """Where in the JSON of a reply the list must be that is worked off next."""

    @property
    def is_final(self) -> bool:
        """True where the work is over."""
        return self.terminal or not self.transitions


@dataclass(frozen=True, kw_only=True)
class StopCondition:
    """What an agent says that ends the team: a regular expression or a condition on its JSON."""

    pattern: str = ""
    agents: tuple[str, ...] = ()
    """Whose words; empty: anybody's."""
    when: Condition | None = None


@dataclass(frozen=True, kw_only=True)
class ManagerLimits:
    """How long the manager of a team may continue without progress."""

    name: str
    stalls: int
    """Rounds without progress, after which it plans again."""
    resets: int
    """New plans, after which the team stops."""


@dataclass(frozen=True, kw_only=True)
class TeamPlan:
    """A whole team."""

    name: str = "team"
    members: tuple[Member, ...]
    order: TurnOrder = "roundrobin"
    initial: str = ""
    branches: tuple[str, ...] = ()
    """States whose agents have a turn each before the first one."""
    states: dict[str, TeamState] = field(default_factory=dict)
    stops: tuple[StopCondition, ...] = ()
    manager: ManagerLimits | None = None
    failing: FailurePolicy = field(default_factory=FailurePolicy)
    verifier: Verifier | None = None
    max_turns: int = 40
    max_tokens: int | None = None
    """Tokens billed to all agents together."""
    warn_at: int = 0
    cutover_at: int = 0
    warn_turn: int = 300_000
    """Tokens of all prompts of one turn, above which it is told as an event; 0: never."""
    summary_model: str = ""
    """Who writes summaries, as the config names it; empty: each agent's own model."""
    brief: str = "brief.json"
    report: str = "test-report.json"
    memory: dict[str, Any] = field(default_factory=dict)
    """The config's section `Memory`: what is asked before each turn; empty: nothing."""
    envelope: ChangeEnvelope = field(default_factory=ChangeEnvelope)
    """Files that agents may write."""
    suite: tuple[str, ...] = ()
    """Commands that run the tests: the whole suite, or those of a file."""
    assertions: tuple[str, ...] = (r"\bassert", r"\bexpect\b")
    """What a test file must hold somewhere to count as one."""
    notes: tuple[str, ...] = ()
    """What of the config is not obeyed here, in sentences."""

    def member(self, name: str) -> Member:
        """Return an agent by its name, upper and lower case alike."""
        return next(m for m in self.members if m.name.casefold() == name.casefold())


def make_plan_details(plan: TeamPlan) -> dict[str, Any]:
    """Return what a team's ledger keeps of its plan: names, what each is shown, thresholds."""
    views = {m.name: m.view_keys for m in plan.members if m.view_keys}
    limits = {"warn_at": plan.warn_at, "cutover_at": plan.cutover_at}
    settings = {"views": views, **limits}
    return {"team": [m.name for m in plan.members], **{k: v for k, v in settings.items() if v}}


CONDITION_OPERATORS = ("Is", "IsNot", "Contains", "Exists")
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
_MAX_REPLY_CHARS = 200_000
"""Characters of a reply that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One field of a JSON object, and what is asked of it."""

    field: str
    """Names between dots, from the outermost on."""
    operator: str
    value: str | bool

    def matches(self, record: dict[str, Any]) -> bool:
        """Say whether an object is so; upper and lower case are alike."""
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


def parse_condition(f: ConfigSection, where: str) -> Condition:
    """Return the condition of a section `Field` and one of `Is`, `IsNot`, `Contains`, `Exists`.

    Raises:
        BadArguments: it names no field, or not just one operator.
    """
    operators = [o for o in CONDITION_OPERATORS if f.get(o) is not None]
    if not f.text("Field") or len(operators) != 1:
        raise BadArguments(
            f"{sanitize_text(where, 80)} needs a Condition: a Field and one of "
            f"{', '.join(CONDITION_OPERATORS)}."
        )
    (name,) = operators
    value = f.get(name)
    if name == "Exists" or isinstance(value, bool):
        return Condition(field=f.text("Field"), operator=name, value=f.flag(name))
    return Condition(field=f.text("Field"), operator=name, value=f.text(name))


def find_json_object(reply: str) -> dict[str, Any] | None:
    """Return the JSON object of a reply: all, a fence's, or first to last brace; else None."""
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
"""How long one may take in one text: some take for ever, and the text is a model's."""


def check_pattern(text: str, where: str) -> str:
    """Return a regular expression that can be searched for.

    Raises:
        BadArguments: it is none; the sentence says where it stands.
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
    """Say whether one of some regular expressions is found in a text.

    Raises:
        BadArguments: looking for one takes longer than a second.
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
