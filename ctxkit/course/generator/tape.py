"""A tape that records an agent at work: clock, prompt sizes, a prefix cache that forgets, compactions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.course.generator.names import StoryNames
from ctxkit.session.messages import Edit, Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

CACHE_SECONDS = 300.0
SCALE = 1.17
"""The provider counts more tokens than a public vocabulary does: so do real logs."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The model, its window and prices, and when its agent compacts."""

    model: str = "claude-sonnet-4-5"
    window: int = 48_000
    """Set for this agent; its model could hold more."""
    due: int = 40_000
    """A compaction is due when a prompt would be larger than this."""
    keep: int = 9_000
    """Tokens of the latest messages that a compaction leaves as they are."""
    input: float = 3e-6
    """Dollars that the provider asked for a token when the sample was made; so the next three."""
    read: float = 0.3e-6
    write: float | None = 3.75e-6
    """None: writing to the cache costs what plain input costs, and is not told apart from it."""
    output: float = 15e-6


SONNET = ModelSettings()


class Tape:
    """Grows a log message by message as one agent would have written it.

    Args:
        rng: where ids, pauses and waits come from.
        count: tokens of a text.
        summary: what a compaction writes, given its number.
        fixed: tokens of the tool schemas, which are sent but not logged as a message.
        of: the model and its prices.
        names: replaces names in all that is written; None: nothing is replaced.
    """

    def __init__(
        self,
        system: str,
        *,
        rng: random.Random,
        count: Callable[[str], int],
        summary: Callable[[int], str],
        fixed: int,
        start: float,
        of: ModelSettings = SONNET,
        names: StoryNames | None = None,
    ) -> None:
        self.of, self.names = of, names or StoryNames()
        self.rng, self.count, self.summary, self.fixed, self.now = rng, count, summary, fixed, start
        self.log: list[Message | Edit] = []
        self.shown: list[Message] = []
        self.sizes: dict[str, int] = {}
        self.cached, self.cached_at = 0, float("-inf")
        self.ids: set[str] = set()
        self.compactions = 0
        self._add(
            Message(
                role="system", id=self._id(), parts=(Text(self.names.retell(system)),), time=start
            )
        )

    def user(self, text: str, pause: float = 60.0) -> None:
        """Somebody types, `pause` seconds after the last answer."""
        self.now += self.names.stretch(pause)
        said = (Text(self.names.retell(text)),)
        self._add(Message(role="user", id=self._id(), parts=said, time=self.now))

    def until(self, time: float) -> float:
        """Return the pause from now to a time of day, in seconds since 1970."""
        return max(60.0, time - self.now)

    def step(
        self,
        *asked: tuple[str, dict[str, Any], str, bool],
        text: str = "",
        thinking: str = "",
        seconds: float | None = None,
    ) -> None:
        """One call that asks for tools, and their results; `asked` holds (tool, arguments, result, is_error)."""
        calls = [
            ToolCall(id=f"call_{self._id()}", name=name, arguments=self._retell_arguments(args))
            for name, args, _, _ in asked
        ]
        self._call(text, thinking, calls)
        for call, (name, _, printed, is_error) in zip(calls, asked, strict=True):
            result = self.names.retell(printed)
            self.now += self.rng.uniform(0.1, 1.5) if seconds is None else seconds
            error = result.splitlines()[-1] if is_error else None
            self._add(
                Message(
                    role="tool", id=self._id(), parts=(Text(result),), tool=name, call_id=call.id,
                    time=round(self.now, 2), is_error=is_error, error=error,
                )
            )  # fmt: skip

    def answer(self, text: str, thinking: str = "") -> None:
        """The call that ends a turn."""
        self._call(text, thinking, [])

    def _retell_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        retell = self.names.retell
        return {k: retell(v) if isinstance(v, str) else v for k, v in arguments.items()}

    def _call(self, text: str, thinking: str, calls: list[ToolCall]) -> None:
        text, thinking = self.names.retell(text), self.names.retell(thinking)
        if self._prompt() > self.of.due:
            self._compact()
        prompt = self._prompt()
        said = (Thinking(thinking, signature=self._id() * 4),) if thinking else ()
        parts = (*said, *((Text(text),) if text else ()), *calls)
        output = self._tokens(parts)
        latency = round(1.1 + prompt / 40_000 + output / self.rng.uniform(45, 80), 2)
        usage = self._bill(prompt, output, sum(self._tokens((p,)) for p in said))
        self.now += latency
        reply = Message(
            role="assistant", id=self._id(), parts=parts, time=round(self.now, 2), usage=usage, model=self.of.model,
            stop="tool" if calls else "stop", latency=latency, context_window=self.of.window,
        )  # fmt: skip
        self._add(reply, output)

    def _bill(self, prompt: int, output: int, reasoning: int) -> Usage:
        """The provider keeps every prompt for five minutes; what is still the same at the front is read, not sent."""
        warm = self.now - self.cached_at < CACHE_SECONDS
        read = min(self.cached, prompt) if warm else 0
        fresh = self.rng.randrange(3, 9)
        write = prompt - read - fresh
        self.cached, self.cached_at = prompt - fresh, self.now
        of, told = self.of, self.of.write is not None
        written = write * (of.input if of.write is None else of.write)
        cost = fresh * of.input + read * of.read + written + output * of.output
        return Usage(
            input_tokens=fresh if told else fresh + write, cache_read_tokens=read,
            cache_write_tokens=write if told else None, output_tokens=output,
            reasoning_tokens=reasoning, cost_usd=round(cost, 6),
        )  # fmt: skip

    def _compact(self) -> None:
        """Sum up all but the system prompt and the latest messages; never part a call from its result."""
        kept, at = 0, len(self.shown)
        while at > 1 and kept < self.of.keep:
            at -= 1
            kept += self.sizes[self.shown[at].id]
        while at > 1 and self.shown[at].role not in ("assistant", "user"):
            at -= 1
        gone, before = self.shown[1:at], self._prompt()
        text = self.names.retell(self.summary(self.compactions))
        made = Message(role="summary", id=self._id(), parts=(Text(text),), time=self.now)
        usage = self._bill(before + 350, self.count(text), 0)
        self.now += 14.0
        self.sizes[made.id] = self._tokens(made.parts)
        self.shown = [self.shown[0], made, *self.shown[at:]]
        self.cached = self.fixed + self.sizes[self.shown[0].id]  # the front that is still the same
        self.compactions += 1
        self.log.append(
            Edit(
                kind="summarised", id=self._id(), targets=tuple(m.id for m in gone), inserted=(made,),
                reason=f"the prompt had {before:,} tokens, more than {self.of.due:,}: all but the latest messages summed up",
                trigger="auto", method="summary", time=round(self.now, 2), tokens_before=before,
                tokens_after=self._prompt(), usage=usage, model=self.of.model,
            )
        )  # fmt: skip

    def _prompt(self) -> int:
        return self.fixed + sum(self.sizes[m.id] for m in self.shown)

    def _add(self, message: Message, size: int | None = None) -> None:
        self.sizes[message.id] = self._tokens(message.parts) if size is None else size
        self.log.append(message)
        self.shown.append(message)

    def _tokens(self, parts: tuple[Any, ...]) -> int:
        total = 4
        for part in parts:
            text = (
                json.dumps(part.arguments) + part.name if isinstance(part, ToolCall) else part.text
            )
            total += round(self.count(text) * SCALE) + (3 if isinstance(part, ToolCall) else 0)
        return total

    def _id(self) -> str:
        while (new := f"{self.rng.getrandbits(32):08x}") in self.ids:
            pass
        self.ids.add(new)
        return new
