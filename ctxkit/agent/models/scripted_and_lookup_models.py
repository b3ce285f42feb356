"""Scripted models, which need no key: replayed replies, two shipped scripts, and a lookup model.

Every file that a script reads it has written before, in a scratch folder, so its tools really run.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.agent.models.model import Delta, Emit, Request
from ctxkit.errors import BadArguments, ModelError, did_you_mean
from ctxkit.session.messages import Message, Part, Text, Thinking, ToolCall, Usage
from ctxkit.tokens.live_prompt_sizes import estimate_schema_tokens
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.tokens.token_counters import TokenCounter


__all__ = [
    "GIVE_UP_TEXT",
    "MAX_LOOKUPS",
    "PromptLookupModel",
    "find_ports",
    "get_service_path",
    "parse_service_names",
]
__dir__ = make_dunder_dir(__all__)


SCRIPT_OVER = "The script is over: this scripted model has no further turn."
SCRIPTED_NOTICE = "scripted model: no LLM was called"

ScriptTurn = tuple[Message, ...]
"""The replies of one turn, in order."""


class ScriptedModel:
    """Replays the replies of a script, found by turn and step, not by the number of messages.

    Usage is counted as a provider would bill it: the longest common prefix with the last prompt is
    read from the cache while it is younger than `cache_life`, the rest is written to it.
    After the last turn, and after the last reply of a turn, it answers that the script is over or
    that the turn is done.

    Args:
        turns: the replies of each turn.
        name: name in frames, after `scripted/`.
        counter: counts the tokens of prompts and replies.
        context_window: tokens above which a request fails as an overflow; None: no limit.
        pause: seconds between two streamed words.
        clock: returns seconds; decides whether the cache is warm.
        cache_life: seconds; the default is the usual five minutes of Anthropic and OpenAI.

    Example:
        >>> from ctxkit.agent import ScriptedModel
        >>> from ctxkit.agent.models.scripted_and_lookup_models import make_reply
        >>> from ctxkit.tokens import default_counter
        >>> turns = [[make_reply("Done.")]]
        >>> model = ScriptedModel(turns, name="x", counter=default_counter(), clock=lambda: 0.0)
        >>> model.name, model.reply(turn=0, step=0).text
        ('scripted/x', 'Done.')
    """

    def __init__(
        self,
        turns: Sequence[ScriptTurn],
        *,
        name: str,
        counter: TokenCounter,
        context_window: int | None = None,
        pause: float = 0.0,
        clock: Callable[[], float],
        cache_life: float = DEFAULT_CACHE_LIFE,
    ) -> None:
        self.turns = tuple(turns)
        self.name = f"scripted/{name}"
        self.notice = SCRIPTED_NOTICE
        self.context_window = context_window
        self._counter = counter
        self._pause = pause
        self._clock = clock
        self._cache_life = cache_life
        self._last_prompt: tuple[Message, ...] = ()
        self._last_time = float("-inf")

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Stream the reply of this turn and step; return it with its counted usage."""
        prompt = self._prompt_tokens(request)
        if self.context_window is not None and prompt > self.context_window:
            raise ModelError(
                f"prompt is too long: {prompt} tokens > {self.context_window} maximum",
                overflow=True,
            )
        reply = self.reply(request.turn, request.step)
        await self._stream_reply(reply, emit)
        usage = self._count_usage(request, prompt, reply)
        self._last_prompt, self._last_time = request.messages, self._clock()
        return msgspec.structs.replace(reply, usage=usage, model=self.name, time=self._last_time)

    def reply(self, turn: int, step: int) -> Message:
        """Return the scripted reply, or the one that says that nothing is left.

        Args:
            turn: number of the turn, from 0.
            step: number of the call in the turn, from 0.
        """
        if turn >= len(self.turns):
            return Message(role="assistant", parts=(Text(SCRIPT_OVER),), stop="stop")
        replies = self.turns[turn]
        if step >= len(replies):
            return Message(role="assistant", parts=(Text("Done."),), stop="stop")
        return replies[step]

    def _prompt_tokens(self, request: Request) -> int:
        schemas = estimate_schema_tokens(request.tools)
        return schemas + sum(map(self._counter.message, request.messages))

    def _count_usage(self, request: Request, prompt: int, reply: Message) -> Usage:
        shared = 0
        if self._clock() - self._last_time < self._cache_life:
            for old, new in zip(self._last_prompt, request.messages, strict=False):
                if old != new:
                    break
                shared += 1
        read = sum(map(self._counter.message, request.messages[:shared]))
        if shared:
            read += estimate_schema_tokens(request.tools)
        return Usage(
            input_tokens=0,
            cache_read_tokens=read,
            cache_write_tokens=prompt - read,
            output_tokens=self._counter.message(reply),
        )

    async def _stream_reply(self, reply: Message, emit: Emit) -> None:
        for part in reply.parts:
            if isinstance(part, Thinking):
                emit(Delta("thinking", part.text))
            elif isinstance(part, ToolCall):
                emit(Delta("tool_call", part.name))
            elif isinstance(part, Text):
                for word in (
                    part.text.splitlines(keepends=True) if not self._pause else part.text.split(" ")
                ):
                    emit(Delta("text", word if not self._pause else word + " "))
                    await asyncio.sleep(self._pause)


def split_replies_by_turn(messages: Sequence[Message]) -> tuple[ScriptTurn, ...]:
    """Return the replies of a conversation by turn; an input after a reply begins a turn.

    Args:
        messages: messages of a recorded session.

    Returns:
        The replies of each turn, for a `ScriptedModel`; usage and ids are left out.
    """
    turns: list[list[Message]] = []
    for message in messages:
        if message.role == "user" and (not turns or turns[-1]):
            turns.append([])
        elif message.role == "assistant":
            if not turns:
                turns.append([])
            turns[-1].append(_clean_reply(message))
    return tuple(tuple(t) for t in turns if t)


def _clean_reply(reply: Message) -> Message:
    parts = tuple(p for p in reply.parts if isinstance(p, (Text, Thinking, ToolCall)))
    stop = "tool" if reply.tool_calls else "stop"
    return Message(role="assistant", parts=parts, stop=stop)


@dataclass(frozen=True, slots=True)
class Script:
    """A script: the user's prompt of each turn, and the replies to it."""

    name: str
    prompts: tuple[str, ...]
    turns: tuple[ScriptTurn, ...]


class _Writer:
    """Makes replies with ids by a counter, so that two runs of a script are equal."""

    def __init__(self, name: str) -> None:
        self._name, self._calls = name, 0

    def make_call(self, thought: str, tool: str, /, **arguments: Any) -> Message:
        self._calls += 1
        call = ToolCall(f"{self._name}_{self._calls}", tool, arguments)
        return _make_reply((Thinking(thought),) if thought else (), call)


def _make_reply(parts: tuple[Part, ...], *more: Part) -> Message:
    all_parts = (*parts, *more)
    return Message(
        role="assistant",
        parts=all_parts,
        stop="tool" if any(isinstance(p, ToolCall) for p in all_parts) else "stop",
    )


def make_reply(text: str) -> Message:
    """Return a reply that ends a turn.

    Args:
        text: the whole reply.

    Returns:
        A message of role `assistant` without tool calls.
    """
    return _make_reply((Text(text),))


_TEMPERATURE_MODULE = '''"""Convert temperatures."""


def to_fahrenheit(celsius: float) -> float:
    return celsius * 9 / 5 + 30
'''


def make_tour_script() -> Script:
    """Return the short script: three turns that write, read, search and fix a small module."""
    writer = _Writer("tour")
    turns: list[ScriptTurn] = [
        (
            writer.make_call("First see what is there.", "list_files"),
            writer.make_call(
                "Nothing yet; write the module.",
                "write_file",
                path="heat.py",
                content=_TEMPERATURE_MODULE,
            ),
            writer.make_call("", "read_file", path="heat.py"),
            make_reply(
                "`heat.py` converts Celsius to Fahrenheit. I have not checked the constant yet."
            ),
        ),
        (
            writer.make_call("Where is the constant?", "search", pattern=r"9 / 5", path="."),
            writer.make_call(
                "Water freezes at 32 °F, not 30.",
                "patch_file",
                path="heat.py",
                old="+ 30",
                new="+ 32",
            ),
            writer.make_call("", "read_file", path="heat.py", start=4),
            make_reply("The constant was 30 and is 32 now: 0 °C is 32 °F."),
        ),
        (
            writer.make_call(
                "",
                "write_file",
                path="NOTES.md",
                content="# Notes\n\n- heat.py: constant mended (30 -> 32)\n",
            ),
            make_reply("I wrote down in `NOTES.md` what was mended."),
        ),
    ]
    prompts = (
        "Write a small module heat.py that converts Celsius to Fahrenheit.",
        "Check the constant in it and mend it if it is wrong.",
        "Write down what you did.",
    )
    return Script("tour", prompts, tuple(turns))


_REGIONS = ("north", "east", "south", "west", "harbour", "valley", "upland", "island")
_LEDGER_ROWS = 90


def _make_ledger(region: str, random: Random) -> tuple[str, str]:
    """Return a region's ledger, and the id of its one row with a wrong sign."""
    rows = ["id,day,account,amount_cents,currency,note"]
    wrong_row = random.randrange(20, _LEDGER_ROWS - 10)
    wrong_id = ""
    for i in range(_LEDGER_ROWS):
        ident = f"INV-{region[:2].upper()}-{random.randrange(10**6):06d}"
        amount = random.randrange(1_000, 900_000)
        if i == wrong_row:
            wrong_id, amount = ident, -amount
        day = f"2026-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}"
        account = f"acct/{random.randrange(100, 999)}"
        note = random.choice(["paid", "paid late", "partly paid", "disputed", "open"])
        rows.append(f"{ident},{day},{account},{amount},EUR,{note}")
    return "\n".join(rows) + "\n", wrong_id


def make_audit_script() -> Script:
    """Return the long script: each turn writes and fixes a ledger; the last lists the fixes."""
    random = Random(20)  # noqa: S311  a script, not a secret
    writer = _Writer("audit")
    prompts = [
        (
            "Audit the regional ledgers one by one. Never change the column order, and note every"
            " id that you mend."
        )
    ]
    turns: list[ScriptTurn] = []
    mended: list[str] = []
    for region in _REGIONS:
        text, wrong = _make_ledger(region, random)
        line = next(row for row in text.splitlines() if row.startswith(wrong))
        right = line.replace(",-", ",")
        mended.append(wrong)
        path = f"ledgers/{region}.csv"
        turns.append(
            (
                writer.make_call(
                    f"The ledger of {region} came as text; keep it.",
                    "write_file",
                    path=path,
                    content=text,
                ),
                writer.make_call("Read it as it stands on disk.", "read_file", path=path),
                writer.make_call(
                    "Amounts are cents and never negative.",
                    "search",
                    pattern=r",-\d+,",
                    path="ledgers",
                ),
                writer.make_call(
                    f"{wrong} has the wrong sign.", "patch_file", path=path, old=line, new=right
                ),
                writer.make_call("Check the row.", "search", pattern=wrong, path="ledgers"),
                make_reply(
                    f"{region}: one row had the wrong sign, {wrong}; mended. The column order is"
                    " unchanged."
                ),
            )
        )
        prompts.append("Go on with the next ledger.")
    note = "# Mended\n\n" + "".join(f"- {i}\n" for i in mended)
    turns.append(
        (
            writer.make_call(
                "The user wanted every mended id noted.",
                "write_file",
                path="MENDED.md",
                content=note,
            ),
            writer.make_call("", "search", pattern=r",-\d+,", path="ledgers"),
            make_reply(
                f"All {len(mended)} ledgers are mended; `MENDED.md` names them, {mended[0]} to"
                f" {mended[-1]}."
            ),
        )
    )
    prompts[-1] = "Now write the list of all ids that you mended."
    return Script("audit", tuple(prompts), tuple(turns))


SCRIPTS: dict[str, Callable[[], Script]] = {"tour": make_tour_script, "audit": make_audit_script}


def get_script(name: str) -> Script:
    """Return a script by name.

    Args:
        name: `tour` (three turns on a small module) or `audit` (long enough to compact).

    Returns:
        The script: prompts of the user, and the replies of each turn.

    Raises:
        BadArguments: there is no such script.

    Example:
        >>> from ctxkit.agent import get_script
        >>> len(get_script("tour").turns)
        3
    """
    if name not in SCRIPTS:
        raise BadArguments(
            f"There is no script {name!r}; there are"
            f" {', '.join(SCRIPTS)}.{did_you_mean(name, SCRIPTS)}"
        )
    return SCRIPTS[name]()


MAX_LOOKUPS = 6
"""Files that the model reads for one question, at most."""
GIVE_UP_TEXT = "I cannot find all of it."
_PORT_LINE = re.compile(r"\b([a-z]+)_port = (\d+)")
_QUESTION = re.compile(r"the ports? of ([a-z][a-z, ]*)")


def find_ports(messages: Iterable[Message]) -> dict[str, int]:
    """Return the ports by service that messages state, in results or summaries.

    Args:
        messages: messages of a prompt of `PromptLookupModel`.

    Returns:
        Port by service; where a service is stated several times, the last one counts.
    """
    return {match[1]: int(match[2]) for m in messages for match in _PORT_LINE.finditer(m.text)}


def parse_service_names(question: str) -> tuple[str, ...]:
    """Return the services in the last question of a text: `... the ports of archive and zone?`."""
    questions = _QUESTION.findall(question)
    return tuple(w for w in re.split(r"[, ]+|\band\b", questions[-1]) if w) if questions else ()


def get_service_path(name: str) -> str:
    """Return the path of a service's file."""
    return f"etc/{name}.toml"


# The question asks for the sum of ports, each stated in the file of its service. For a port that
# the prompt does not show, the model reads the file, for the first time or again. So rules that
# remove a port which is still needed cost another step, which a replay of the recorded steps
# cannot show. The model gives up after MAX_LOOKUPS steps of one question.


class PromptLookupModel(ScriptedModel):
    """Answers from what its prompt shows; billed as any scripted model.

    Args:
        tool: name of the tool that reads a file, given its `path`.
        blind: it answers from everything that it was ever shown, and so takes the same steps under
            any rules; what a replay predicts must then come true.
        name, counter, context_window, clock: see `ScriptedModel`.
    """

    def __init__(
        self,
        *,
        tool: str = "read_file",
        blind: bool = False,
        name: str = "ports",
        counter: TokenCounter,
        context_window: int | None = None,
        clock: Callable[[], float],
    ) -> None:
        super().__init__((), name=name, counter=counter, context_window=context_window, clock=clock)
        self._tool, self._trusts_memory, self._seen_ports = tool, blind, dict[str, int]()
        self._request: Request | None = None

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Look at the prompt, then answer as a scripted model does."""
        self._request = request
        return await super().__call__(request, emit)

    def reply(self, turn: int, step: int) -> Message:
        """Return the next step: read the file of the first missing port, else the answer."""
        assert self._request is not None  # noqa: S101  it is called with a request
        messages = self._request.messages
        visible_ports = find_ports(messages)
        if self._trusts_memory:
            self._seen_ports |= visible_ports
            visible_ports = self._seen_ports
        questions = (
            parse_service_names(m.text) for m in reversed(messages) if m.role in ("user", "summary")
        )
        services = next(filter(None, questions), ())  # text that the rules add has no question
        missing = next((name for name in services if name not in visible_ports), None)
        if missing is not None and step >= MAX_LOOKUPS:
            return _text_reply(GIVE_UP_TEXT)
        if missing is not None:
            call = ToolCall(f"read_{turn}_{step}", self._tool, {"path": get_service_path(missing)})
            return Message(role="assistant", parts=(call,), stop="tool")
        if not services:
            return _text_reply("Ask me for the sum of the ports of some services.")
        return _text_reply(f"The sum is {sum(visible_ports[name] for name in services)}.")


def _text_reply(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text),), stop="stop")
