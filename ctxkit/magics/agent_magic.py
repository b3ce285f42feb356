"""`%%agent`: a turn of a live session in the cell or in the background, its status, images and dry
run.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace as rehearsal_replace

from ctxkit._internal.formatting_and_sanitizing import (
    TextAndHtml,
    format_percent,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.safe_files import expand_home
from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
from ctxkit.agent.document_store import ContextStore
from ctxkit.agent.event_loop_threads import BackgroundTask, run_coroutine
from ctxkit.agent.models.model import accepts_images, images_unsupported_message
from ctxkit.agent.session_settings_seal_and_changes import refuse_scripted_model_after_real
from ctxkit.agent.system_prompt import (
    PROJECT_FILES,
    PromptSectionSources,
    PromptSectionUpdater,
    parse_section_names,
)
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.agent.tools.execution_and_results import (
    IMAGE_KINDS,
    MAX_IMAGE_BYTES,
    image_from_bytes,
    image_from_value,
)
from ctxkit.agent.turn_limits_and_token_budgets import Limits
from ctxkit.errors import BadArguments, ModelError
from ctxkit.magics.cell_magic_arguments import SESSION_SETTINGS, AgentArguments
from ctxkit.magics.kernel_sessions import DEFAULT_SESSION
from ctxkit.magics.mcp_servers_and_acp_agents import check_acp_agent_options, find_acp_agent_log
from ctxkit.magics.subcommand_dispatch import PreformattedText
from ctxkit.magics.turn_display import CellOutput, LiveTurnDisplay, TerminalOutput
from ctxkit.magics.turn_handle_and_approvals import (
    ToolApprover,
    TurnHandle,
    TurnInterrupted,
    TurnResult,
    ask_by_input_async,
    parse_approval_tools,
)
from ctxkit.metrics.prompt_composition import split_tokens_by_weight
from ctxkit.session.compactions_and_prunings import count_compactions
from ctxkit.session.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.agent.agent import Agent
    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.models.model import Model
    from ctxkit.agent.turn_state_and_events import Outcome
    from ctxkit.magics.kernel_sessions import KitState
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.history.history import History
    from ctxkit.session.messages import Attachment
    from ctxkit.session.session import Session
    from ctxkit.tokens import ContextBudget


_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")


# The order matters. What needs no session is checked first (prompt, variable, pictures, limits), so
# a line that is refused there opens nothing. A dry run returns before the session is opened. Then
# the session is opened or resumed, its notes are printed once, and approval is set again for each
# turn, since a cell asks in its input field and a turn in the background by buttons.
def run_agent_magic(kit: KitState, arguments: AgentArguments, body: str) -> object:
    """Run a turn of `%%agent`: the cell is the prompt. Without a prompt, show the status.

    Args:
        arguments: the parsed line.
        body: the cell; the prompt is the line's rest, then the cell.

    Returns:
        The answer, a handle with `--background`, or a status without a prompt.

    Raises:
        BadArguments: the cell is empty, `--out` is no name of a variable, or the model takes no
            images.
    """
    prompt = "\n".join(t for t in (arguments.prompt.strip(), body.strip()) if t)
    if not prompt and arguments != AgentArguments(session=arguments.session):
        raise BadArguments(
            "Nothing was asked: the cell below `%%agent` is the prompt. `%agent` alone is the"
            " status."
        )
    if not prompt:
        return show_session_status(kit, arguments.session)
    if arguments.out and not arguments.out.isidentifier():
        raise BadArguments(
            f"{arguments.out!r} is no name of a variable: give `--out` one, such as answer."
        )
    if arguments.expand:
        prompt = expand_prompt_variables(prompt, kit.shell.user_ns)
    pictures = load_attached_images(arguments.attach, kit.shell.user_ns)
    if arguments.via:
        check_acp_agent_options(arguments)
    name, limits = (
        arguments.session or kit.lives.current_name or DEFAULT_SESSION,
        _line_limits(arguments),
    )
    _update_limits(Limits(), limits)  # what is no limit is refused before anything is opened
    if arguments.trust:
        Workspace().trust(name)
    if arguments.dry_run:
        return show_dry_run(kit, name, arguments, prompt, pictures)
    # Only new rules or a new model call for a note on the window.
    fresh = name not in kit.lives or arguments.rules is not None or arguments.model is not None
    live = kit.lives.open(name, **_line_settings(arguments))
    live.limit(_update_limits(live.agent.limits, limits))
    confirmed = parse_approval_tools(live.settings["approve"], live.agent.tools, live.root)
    notes = [live.log.recovered] if live.log.recovered else []
    notes += [*live.notes, *kit.lives.servers.notes(name), *_explain_unused_model(arguments, live)]
    live.notes = ()
    read = live.agent.sections is not None and "project" in live.agent.sections.names
    if not live.session.log and live.settings["root"]:
        note = describe_project_instruction_files(live.root, read=read)
        notes += [note] if note else []
    for note in [*notes, *(describe_window_mismatch(live.agent) if fresh else [])]:
        print(note)  # noqa: T201  said once, where the session is opened
    live.log.recovered = None
    if pictures and accepts_images(live.agent.model) is False:
        raise BadArguments(images_unsupported_message(live.agent.model))
    if arguments.background:
        return run_turn_in_background(
            kit, live, prompt, arguments.out, confirmed, pictures=pictures
        )
    live.agent.approve = ToolApprover(confirmed, kit.lives.always(name), ask_by_input_async)
    return run_turn_in_cell(kit, live, prompt, arguments.out, pictures)


def run_turn_in_cell(
    kit: KitState,
    live: LiveSession,
    prompt: str,
    out: str | None,
    pictures: Sequence[Attachment] = (),
) -> TurnResult:
    """Run a turn while the cell waits; an interrupt keeps the text that has arrived.

    Args:
        live: the session; it is locked while the turn runs.
        prompt: the whole prompt, variables filled in.
        out: name of the variable that gets the answer; None: none does.
        pictures: images that are sent with the prompt.

    Returns:
        The answer; its text is what was displayed.

    Raises:
        TurnInterrupted: the user interrupted the kernel; the text so far is in the session.
    """
    try:
        with LiveTurnDisplay(live, CellOutput() if kit.rich else TerminalOutput(), raises=True):
            outcome = run_coroutine(live.turn(prompt, images=pictures))
    except KeyboardInterrupt:
        _publish_session(kit, live)
        raise TurnInterrupted(
            f"Interrupted. What was said so far is kept in session {live.name!r}."
        ) from None
    _publish_session(kit, live)
    return _make_answer(kit, live, outcome, out)


def run_turn_in_background(
    kit: KitState,
    live: LiveSession,
    prompt: str,
    out: str | None,
    confirmed: frozenset[str],
    *,
    pictures: Sequence[Attachment] = (),
) -> TurnHandle:
    """Run a turn in the background and return its handle at once.

    Args:
        kit: sessions and variables of the kernel.
        live: the session; it is locked while the turn runs.
        prompt: the whole prompt, variables filled in.
        out: name of the variable that gets the handle; None: none does.
        confirmed: names of the tools whose calls the user approves.
        pictures: images that are sent with the prompt.
    """
    handle = TurnHandle(
        live.name, leaves=not kit.seed
    )  # with a seed no output is changed afterwards
    live.agent.approve = ToolApprover(confirmed, kit.lives.always(live.name), handle.ask)
    screen = LiveTurnDisplay(live, handle if kit.rich else TerminalOutput())

    async def work() -> TurnResult:
        with screen:
            outcome = await live.turn(prompt, images=pictures)
        return _make_answer(kit, live, outcome, None, screen.final_view)

    def finish() -> None:
        handle.show_end()
        _publish_session(kit, live)

    handle.running = BackgroundTask(work(), finish)
    kit.lives.note_running(live.name, handle.running)
    if out:
        kit.shell.user_ns[out] = handle
    return handle


def show_session_status(kit: KitState, name: str | None) -> PreformattedText:
    """Return the status of a live session: context, model, rules, tools, files.

    Args:
        kit: sessions of the kernel.
        name: name of the session; None: the current one.
    """
    live = kit.lives.get(name)
    agent_ = live.agent
    used, limit = agent_.gauge()
    calls = pluralize(len(live.session.calls), "call")
    compactions = pluralize(count_compactions(live.session) or 0, "compaction")
    lines = [
        f"Session {live.name} ({live.id}): {calls}, {compactions}",
        f"Context: {used:,}/{limit:,} tokens ({format_percent(used / limit)})",
        f"Model: {agent_.model.name}"
        + (f" ({agent_.model.notice})" if agent_.model.notice else ""),
        f"Rules: {agent_.rules.label} · Limits of a turn: {agent_.limits}",
        f"Tools: {', '.join(agent_.tools)} in {live.root.folder}",
        *([f"Sections: {', '.join(agent_.sections.names)}"] if agent_.sections else []),
        *(["Memory: what is remembered here, see %memory list"] if live.memory is not None else []),
        f"Kept in: {live.log.path}",
    ]
    return PreformattedText("\n".join(lines))


def show_dry_run(
    kit: KitState,
    name: str,
    arguments: AgentArguments,
    prompt: str,
    pictures: Sequence[Attachment] = (),
) -> PreformattedText:
    """Show the first prompt of a turn, its size and its cost; nothing is sent or stored.

    Args:
        name: name of the session, which may not exist yet.
        arguments: the parsed line, whose options choose model, rules and tools.
        prompt: the prompt of the turn.
        pictures: images that would be sent with it.

    Returns:
        Text with the size in tokens and the price of the first prompt, in US dollars.

    Raises:
        BadArguments: an external agent makes the prompt (`--via`).
    """
    settings = kit.lives.settings(name, _line_settings(arguments))
    parts = kit.lives.resolver.resolve_config(settings)
    if parts.via:
        raise BadArguments(
            f"What {parts.via[0]} sends to its model is its own affair: it cannot be shown before."
        )
    session = kit.lives.get(name).session if name in kit.lives else kit.read_stored_session(name)
    model = kit.lives.resolver.resolve_model(parts.model, parts.rules)
    refuse_scripted_model_after_real(session, model, name)
    tools, system = (
        kit.lives.resolver.resolve_tools(settings["tools"]),
        kit.lives.resolver.load_instructions(settings),
    )
    tools += kit.lives.servers.tools(name, parts.mcp)  # started: only they know what they offer
    root = RootFolder(parts.root) if parts.root is not None and parts.root.is_dir() else None
    folder = root.folder if root else Workspace().scratch(name)
    memory = kit.lives.resolver.resolve_memory(settings["memory"], model)
    around = PromptSectionSources(folder=folder, root=root, own=system, store=ContextStore(),
                          memory=memory.text if memory is not None else None)  # fmt: skip
    sections = PromptSectionUpdater(parse_section_names(settings["sections"]), around)
    return PreformattedText(
        describe_dry_run(
            session, model, parts.rules, tools, prompt, sections=sections, pictures=pictures
        )
    )


def expand_prompt_variables(prompt: str, user_variables: dict[str, Any]) -> str:
    """Return a prompt with the values of variables in place of `{{name}}`.

    Args:
        prompt: the prompt as written in the cell.
        user_variables: values by name; a value is inserted as its `str()`.

    Raises:
        BadArguments: there is no such variable.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in user_variables:
            raise BadArguments(f"There is no variable {match[1]!r} to put in place of {match[0]}.")
        return str(user_variables[match[1]])

    return _VARIABLE.sub(value, prompt)


def _make_answer(
    kit: KitState,
    live: LiveSession,
    outcome: Outcome,
    out: str | None,
    display: TextAndHtml | None = None,
) -> TurnResult:
    """Return the answer of a turn.

    Raises:
        ModelError: the model failed; the variable that was asked for has the outcome all the same.
    """
    chart = live.workspace.chart(live.id).relative_to(live.workspace.folder.parent)
    drawn = chart if outcome.spent.calls else None
    answer = TurnResult(outcome, live.session, display, drawn, find_acp_agent_log(live))
    if answer.own is not None:
        kit.sessions.update(answer.own, f"{live.name}.own")
    if out:
        kit.shell.user_ns[out] = answer
    if outcome.ended == "error":
        raise ModelError(
            f"{sanitize_line(outcome.why, 600)} The prompt is kept in session {live.name!r}."
        )
    return answer


def _publish_session(kit: KitState, live: LiveSession) -> None:
    """Make the session known to the other magics, and write its chart, which opens offline."""
    from ctxkit.plots import budget

    kit.sessions.update(live.session, live.name)
    live.workspace.write(live.workspace.chart(live.id), budget(live.session).encode_page())


def _line_settings(arguments: AgentArguments) -> dict[str, str | None]:
    return {k: getattr(arguments, k) for k in SESSION_SETTINGS}


def _line_limits(arguments: AgentArguments) -> dict[str, float]:
    """Return the limits that a line names; the others stay as they were."""
    limits = {
        "calls": arguments.max_calls,
        "cost_usd": arguments.max_cost,
        "tokens": arguments.max_tokens,
        "seconds": arguments.max_seconds,
    }
    return {k: v for k, v in limits.items() if v is not None}


def _update_limits(limits: Limits, changes: dict[str, float]) -> Limits:
    """Return limits with those that were named; `inf` lifts one."""
    named: dict[str, Any] = {k: None if v == inf else v for k, v in changes.items()}
    return replace(limits, **named)


def load_attached_images(
    option_value: str | None, user_variables: Mapping[str, Any]
) -> list[Attachment]:
    """Return the pictures that `--attach` names, separated by commas.

    Args:
        option_value: paths in the working folder, or variables that hold a figure, a Pillow image
            or bytes.
        user_variables: the user's variables.

    Raises:
        BadArguments: one is not there, is no picture, or is too large.
    """
    if not option_value:
        return []
    # A file's name may hold commas: words that name a file as a whole are not split.
    is_one_file = os.path.isfile(expand_home(option_value))  # noqa: PTH113  a name too long is no error here
    names_or_paths = [option_value] if is_one_file else option_value.split(",")
    return [_load_attachment(w.strip(), user_variables) for w in names_or_paths if w.strip()]


def _load_attachment(word: str, names: Mapping[str, Any]) -> Attachment:
    if word.isidentifier() and word in names:
        image = image_from_value(names[word])
        if image is None:
            raise BadArguments(
                f"`--attach {sanitize_line(word, 60)}`: the variable holds no picture."
            )
        return image
    path = expand_home(word)
    if not os.path.isfile(path):  # noqa: PTH113  as above
        sentence = (
            f"`--attach {sanitize_line(word, 200)}`: there is no such file, and no such variable."
        )
        raise BadArguments(sentence)
    try:
        # One byte above the bound shows that a file is too large without reading all of it.
        with path.open("rb") as file:
            return image_from_bytes(file.read(MAX_IMAGE_BYTES + 1), sanitize_line(word, 200))
    except OSError as e:
        raise BadArguments(f"{sanitize_line(word, 200)!r} cannot be read ({e.strerror}).") from None
    except BadArguments as e:
        if "no picture" not in str(e):
            raise
        raise BadArguments(
            f"{sanitize_line(word, 200)} is no picture ({IMAGE_KINDS}): a text or a document is "
            "read by the "
            "agent's own tools, or put where it finds it by `%context add`."
        ) from None


def describe_dry_run(
    stored: Session | None,
    model: Model,
    rules: Rules,
    tools: Sequence[str | Any],
    prompt: str,
    *,
    sections: PromptSectionUpdater,
    pictures: Sequence[Attachment] = (),
) -> str:
    """Describe what a prompt's first call would send, without sending or writing anything.

    Args:
        stored: the session to continue; None: a new one.
        model: the model that would be called.
        rules: the rules of the session.
        tools: tools, by name or as objects.
        prompt: the whole prompt, variables filled in.
        sections: the prompt sections of the session.
        pictures: images that would be sent with the prompt.
    """
    from ctxkit.agent import Agent
    from ctxkit.session.session import Session

    session = stored or Session(id="dry-run")
    trial = Agent(
        session, model=model, rules=rules, tools=_describe_tools(tools), clock=lambda: 0.0
    )
    context = trial.compactor.context
    if not session.log and not sections.names and sections.around.own:
        trial.instruct(sections.around.own)
    elif sections.names and (section_message := sections.make_update(session, time.time())):
        context.add(rehearsal_replace(section_message, id="dry-run-sections"))
    context.add(Message(role="user", id="dry-run", parts=(Text(prompt), *pictures)))
    (messages, _), tokens = context.preview(), context.estimate_size()
    parts = _tokens_by_part(messages, context.log.counter, context.schemas)
    # The estimate is distributed over the parts in proportion to their counts.
    sizes = split_tokens_by_weight(tokens, [n for _, n in parts])
    rows = [f"{n:>9,}  {name}" for n, (name, _) in zip(sizes, parts, strict=True)]
    limit = context.run.budget.limit
    head = (
        f"Would send {pluralize(len(messages), 'message')}, {tokens:,}/{limit:,} tokens"
        f" ({format_percent(tokens / limit)}), to {model.name}."
    )
    due = ["A compaction would come first."] if _would_compact(trial, rules) else []
    notes = [
        *due,
        *describe_window_mismatch(trial),
        f"Nothing was sent. The prompt: {sanitize_line(prompt, 200)}",
    ]
    return "\n".join([head, *rows, _describe_price(model, tokens), *notes])


def _explain_unused_model(arguments: AgentArguments, live: LiveSession) -> list[str]:
    """Return a note where a summary model was named that the rules never ask."""
    rules = live.agent.rules
    if not arguments.summary_model or live.agent.compactor.uses_summary_model:
        return []
    snippet = f"`mine = ck.presets.{rules.label}(summariser=...)`"
    advice = f"; they take one as {snippet}" if "summariser" in rules.parameters else ""
    unused = "ask no model for a summary, so `--summary-model` writes none"
    return [f"Note: rules {rules.label} {unused}{advice}."]


def describe_window_mismatch(agent: Agent) -> list[str]:
    """Return notes on rules that were made for another window than the model's; usually none."""
    budget, model, rules = agent.compactor.context.run.budget, agent.model, agent.rules
    # Presets name this parameter after their system; all begin with `context_window`.
    window = next((k for k in rules.parameters if k.startswith("context_window")), None)
    less = [k for k in rules.parameters if re.search("reserve|output|^keep_.*tokens", k)]
    advice = "Give other rules, or a model with a larger window."
    if window is not None:
        size = f"{model.context_window or budget.limit:_}"
        advice = (
            f"Give rules that fit (`mine = ck.presets.{rules.label}({window}={size}, ...)`, then"
            " `--rules mine`"
            + (f"; smaller too: {', '.join(less)}" if less else "")
            + "), or a model with a larger window."
        )
    if model.context_window is not None and budget.limit > model.context_window:
        takes = f"{model.name} takes {model.context_window:,}"
        counts = f"count on a window of {budget.limit:,} tokens"
        return [f"Note: rules {rules.label} {counts}, but {takes}. {advice}"]
    if budget.reserve >= budget.limit:
        reserve_text = (
            f"hold {budget.reserve:,} tokens free in a window of {budget.limit:,}:"
            " a compaction is due at every call"
        )
        return [f"Note: rules {rules.label} {reserve_text}. {advice}"]
    return []


def _describe_tools(named: Sequence[str | Any]) -> list[Any]:
    """Return the tools as they would be described to the model; their root is a folder that is gone
    again.
    """
    from tempfile import TemporaryDirectory

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.agent.tools.python_shell_and_summary_tools import (
        make_inert_brief_and_summary_tools,
        make_tools,
    )

    with TemporaryDirectory() as folder:
        return make_tools(
            named, RootFolder(folder), {}, work_tools=make_inert_brief_and_summary_tools()
        )


def _tokens_by_part(messages: Iterable[Message], counter: Any, fixed: int) -> list[tuple[str, int]]:
    """Return the tokens of each role and tool, the largest first, then what no message holds."""
    sums: dict[str, int] = {}
    for m in messages:
        name = f"results of {sanitize_line(m.tool, 40)}" if m.tool else m.role
        sums[name] = sums.get(name, 0) + counter.message(m)
    parts = sorted(sums.items(), key=lambda part: -part[1])
    return [*parts, *([("tool descriptions", fixed)] if fixed else [])]


def _describe_price(model: Model, tokens: int) -> str:
    from ctxkit.tokens.prices import price

    if model.notice:
        return f"It would cost nothing ({model.notice})."
    model_price = price(model.name)
    if model_price is None:
        return "No price of the model is known."
    # The dearest case: all of the prompt is written to the cache.
    dearest = tokens * model_price.at(tokens).write()
    return f"The first prompt would cost at most ${dearest:.4f}, its reply beside."


def _would_compact(trial: Any, rules: Rules) -> bool:
    """Return whether the rules would compact before this call; their own policy is not asked, so no
    summary is written.
    """
    if rules.policy is None:
        return False
    compacted_sizes: list[int] = []

    # A probe in place of the policy: it notes the call and changes nothing.
    def policy(history: History, budget: ContextBudget) -> History:  # noqa: ARG001  the shape of a policy
        compacted_sizes.append(history.tokens)
        return history

    context = trial.compactor.context
    context.rules = rules.but(policy=policy, on_compacted=None)
    context.prepare(0.0)
    return bool(compacted_sizes)


MAIN_PROJECT_FILE = PROJECT_FILES[0]


def describe_project_instruction_files(root: RootFolder, *, read: bool) -> str:
    """Return a note on the project's instruction files in the root: read or not.

    Args:
        root: folder of the tools, which the user named.
        read: the section `project` is in the prompt.

    Returns:
        A sentence with the option that changes it; empty without such files.
    """
    there = " and ".join(name for name in PROJECT_FILES if root.is_file((name,)))
    if there and read:
        return (
            f"Note: {there} of the root stands in the prompt, as the project's word; "
            "`--sections -project` leaves it out."
        )
    if not root.is_file((MAIN_PROJECT_FILE,)):
        return ""
    return (
        f"Note: the root has an {MAIN_PROJECT_FILE}; `--system {MAIN_PROJECT_FILE}` begins a "
        "session with it."
    )
