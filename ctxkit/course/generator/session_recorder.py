"""Recorder of a simulated agent session: clock, prompt sizes, prefix cache, compactions, renaming
by seed.
"""

# The story is written once, with the names of the sample `billing`. For another seed each name that
# a fact rests on is replaced wherever it is used: in requests, results, replies, summaries and in
# the patterns that find the facts again.

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.session.messages import Edit, Message, Text, Thinking, ToolCall, Usage
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

ToolRun = tuple[str, dict[str, Any], str, bool]
"""Tool, arguments, result, and whether the result is an error."""
CACHE_SECONDS = float(get_value("cache_life", "claude"))
"""Seconds for which the provider caches a prompt."""
TOKEN_SCALE = 1.17
"""Tokens that the provider counts for one of the public vocabulary, as in real logs."""


@dataclass(frozen=True, kw_only=True)
class ModelProfile:
    """A model, its context window and prices, and when its agent compacts."""

    model: str = "claude-sonnet-4-5"
    context_window: int = 48_000
    """Tokens, set for this agent; its model could hold more."""
    compaction_threshold: int = 40_000
    """Tokens of a prompt above which the agent compacts."""
    keep_recent: int = 9_000
    """Tokens of the latest messages that a compaction leaves as they are."""
    input_usd: float = 3e-6
    """Dollars a token when the sample was made; so the next three."""
    cache_read_usd: float = 0.3e-6
    cache_write_usd: float | None = 3.75e-6
    """None: a cache write costs what plain input costs, and is reported as input."""
    output_usd: float = 15e-6


SONNET = ModelProfile()


class SessionRecorder:
    """Appends to a log message by message, as one agent would.

    Args:
        system: the system prompt.
        rng: draws ids, pauses and latencies.
        count_tokens: returns the tokens of a text.
        write_summary: returns the text of a compaction, given its number from 0.
        schema_tokens: tokens of the tool schemas, which are sent but not logged as a message.
        start: time of the system prompt, in seconds since 1970.
        profile: the model and its prices.
        names: replaces names in all texts; None: nothing is replaced.
    """

    def __init__(
        self,
        system: str,
        *,
        rng: random.Random,
        count_tokens: Callable[[str], int],
        write_summary: Callable[[int], str],
        schema_tokens: int,
        start: float,
        profile: ModelProfile = SONNET,
        names: SampleNameAndDateReplacer | None = None,
    ) -> None:
        self.profile, self.names, self.rng = profile, names or SampleNameAndDateReplacer(), rng
        self.count_tokens, self.write_summary = count_tokens, write_summary
        self.schema_tokens, self.now = schema_tokens, start
        self.log: list[Message | Edit] = []
        self.visible: list[Message] = []
        self.sizes: dict[str, int] = {}
        self.cached_tokens, self.cached_at = 0, float("-inf")
        self.ids: set[str] = set()
        self.compactions = 0
        self._append_text("system", system)

    def add_user_message(self, text: str, pause: float = 60.0) -> None:
        """Append a user message after a pause.

        Args:
            text: the message.
            pause: seconds since the last answer, before they are varied.
        """
        self.now += self.names.vary_pause(pause)
        self._append_text("user", text)

    def get_pause_until(self, time: float) -> float:
        """Return the seconds from now to a time (in seconds since 1970), at least 60."""
        return max(60.0, time - self.now)

    def add_tool_calls(
        self,
        *runs: ToolRun,
        text: str = "",
        thinking: str = "",
        seconds: float | None = None,
    ) -> None:
        """Append a model call with tool calls, and their results.

        Args:
            runs: the tool calls.
            text: text of the model before them.
            thinking: its reasoning.
            seconds: how long each tool takes; None: drawn, at most 1.5.
        """
        calls = [
            ToolCall(
                id=f"call_{self._make_id()}", name=name, arguments=self._replace_names_in(args)
            )
            for name, args, _, _ in runs
        ]
        self._append_reply(text, thinking, calls)
        for call, (name, _, output, is_error) in zip(calls, runs, strict=True):
            result = self.names.replace_names(output)
            self.now += self.rng.uniform(0.1, 1.5) if seconds is None else seconds
            error = result.splitlines()[-1] if is_error else None
            self._append(
                Message(
                    role="tool", id=self._make_id(), parts=(Text(result),), tool=name,
                    call_id=call.id, time=round(self.now, 2), is_error=is_error, error=error,
                )
            )  # fmt: skip

    def add_answer(self, text: str, thinking: str = "") -> None:
        """Append the model call that ends a turn.

        Args:
            text: the reply.
            thinking: its reasoning; empty: none.
        """
        self._append_reply(text, thinking, [])

    def _replace_names_in(self, arguments: dict[str, Any]) -> dict[str, Any]:
        replace = self.names.replace_names
        return {k: replace(v) if isinstance(v, str) else v for k, v in arguments.items()}

    def _append_text(self, role: Literal["system", "user"], text: str) -> None:
        parts = (Text(self.names.replace_names(text)),)
        self._append(Message(role=role, id=self._make_id(), parts=parts, time=self.now))

    def _append_reply(self, text: str, thinking: str, calls: list[ToolCall]) -> None:
        text, thinking = self.names.replace_names(text), self.names.replace_names(thinking)
        if self._count_prompt() > self.profile.compaction_threshold:
            self._compact()
        prompt = self._count_prompt()
        reasoning = (Thinking(thinking, signature=self._make_id() * 4),) if thinking else ()
        parts = (*reasoning, *((Text(text),) if text else ()), *calls)
        output = self._count_parts(parts)
        latency = round(1.1 + prompt / 40_000 + output / self.rng.uniform(45, 80), 2)
        usage = self._bill_call(prompt, output, sum(self._count_parts((p,)) for p in reasoning))
        self.now += latency
        reply = Message(
            role="assistant", id=self._make_id(), parts=parts, time=round(self.now, 2),
            usage=usage, model=self.profile.model, stop="tool" if calls else "stop",
            latency=latency, context_window=self.profile.context_window,
        )  # fmt: skip
        self._append(reply, output)

    def _bill_call(self, prompt: int, output: int, reasoning: int) -> Usage:
        """Return the usage; within `CACHE_SECONDS` the unchanged front is a cache read."""
        is_warm = self.now - self.cached_at < CACHE_SECONDS
        cache_read = min(self.cached_tokens, prompt) if is_warm else 0
        fresh = self.rng.randrange(3, 9)
        cache_write = prompt - cache_read - fresh
        self.cached_tokens, self.cached_at = prompt - fresh, self.now
        prices, write_usd = self.profile, self.profile.cache_write_usd
        has_write_price = write_usd is not None
        written_usd = cache_write * (prices.input_usd if write_usd is None else write_usd)
        read_usd = cache_read * prices.cache_read_usd
        cost = fresh * prices.input_usd + read_usd + written_usd + output * prices.output_usd
        return Usage(
            input_tokens=fresh if has_write_price else fresh + cache_write,
            cache_read_tokens=cache_read,
            cache_write_tokens=cache_write if has_write_price else None, output_tokens=output,
            reasoning_tokens=reasoning, cost_usd=round(cost, 6),
        )  # fmt: skip

    def _compact(self) -> None:
        """Replace all but the system prompt and the latest messages by a summary.

        A call and its result stay together.
        """
        recent_tokens, at = 0, len(self.visible)
        while at > 1 and recent_tokens < self.profile.keep_recent:
            at -= 1
            recent_tokens += self.sizes[self.visible[at].id]
        while at > 1 and self.visible[at].role not in ("assistant", "user"):
            at -= 1
        removed, before = self.visible[1:at], self._count_prompt()
        text = self.names.replace_names(self.write_summary(self.compactions))
        parts = (Text(text),)
        summary = Message(role="summary", id=self._make_id(), parts=parts, time=self.now)
        usage = self._bill_call(before + 350, self.count_tokens(text), 0)
        self.now += 14.0
        self.sizes[summary.id] = self._count_parts(summary.parts)
        self.visible = [self.visible[0], summary, *self.visible[at:]]
        # of the cached prompt only its front is unchanged
        self.cached_tokens = self.schema_tokens + self.sizes[self.visible[0].id]
        self.compactions += 1
        reason = (
            f"the prompt had {before:,} tokens, more than {self.profile.compaction_threshold:,}: "
            "all but the latest messages summed up"
        )
        self.log.append(
            Edit(
                kind="summarised", id=self._make_id(), targets=tuple(m.id for m in removed),
                inserted=(summary,), reason=reason, trigger="auto", method="summary",
                time=round(self.now, 2), tokens_before=before,
                tokens_after=self._count_prompt(), usage=usage, model=self.profile.model,
            )
        )  # fmt: skip

    def _count_prompt(self) -> int:
        return self.schema_tokens + sum(self.sizes[m.id] for m in self.visible)

    def _append(self, message: Message, size: int | None = None) -> None:
        self.sizes[message.id] = self._count_parts(message.parts) if size is None else size
        self.log.append(message)
        self.visible.append(message)

    def _count_parts(self, parts: tuple[Any, ...]) -> int:
        total = 4
        for part in parts:
            is_call = isinstance(part, ToolCall)
            text = json.dumps(part.arguments) + part.name if is_call else part.text
            total += round(self.count_tokens(text) * TOKEN_SCALE) + (3 if is_call else 0)
        return total

    def _make_id(self) -> str:
        while (new_id := f"{self.rng.getrandbits(32):08x}") in self.ids:
            pass
        self.ids.add(new_id)
        return new_id


_CURRENCIES = (
    ("CLP", "CL", "Chile"),
    ("KRW", "KR", "South Korea"),
    ("PYG", "PY", "Paraguay"),
    ("VND", "VN", "Vietnam"),
    ("XOF", "SN", "Senegal"),
    ("UGX", "UG", "Uganda"),
)
"""Currencies without a minor unit, which the sample's ISK of Iceland is, too."""
_PEOPLE = ("Jonas", "Amira", "Teresa", "Kofi", "Sunniva", "Mateo", "Ilse", "Ravi")
_PROJECTS = ("PAY", "FIN", "EXPO", "ACCT", "CASH")
_QUEUES = ("ledger-feed", "books-in", "csv-intake", "acct-sync", "sap-bridge")
_HEADERS = ("X-Pay-Span", "X-Request-Chain", "X-Ledger-Trail", "X-Flow-Mark", "X-Gate-Ref")
_ERRORS = ("CurrencyMissing", "NoMinorUnit", "UnlistedCurrency", "NoSuchCurrency")
_KEYS = ("number", "serial", "uid", "ref")
_DATE = re.compile(r"2026-03-(\d\d)")
_DAY_OF_MARCH = re.compile(r"\b(\d{1,2}) March")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LONGEST_PAUSE = 5_000.0
"""Seconds up to which a pause is stretched; longer ones lead to a fixed time of day."""


@dataclass(frozen=True)
class SampleNameAndDateReplacer:
    """Replaces the names of the sample; without any it returns each text as it is."""

    new_names: dict[str, str] = field(default_factory=dict)
    """By the sample's name."""
    days_earlier: int = 0
    """Days by which the failing nights are before those of the sample."""
    random: Random | None = None
    """Draws how much longer or shorter each pause is; None: as in the sample."""

    @classmethod
    def draw(cls, seed: int | str) -> SampleNameAndDateReplacer:
        """Return names drawn from a seed; the same seed draws the same."""
        rng = Random(f"names {seed}")  # noqa: S311  no secret
        currency, market, country = rng.choice(_CURRENCIES)
        rows, missing = rng.randrange(900, 1_900), rng.randrange(21, 79)
        key, error = rng.choice(_KEYS), rng.choice(_ERRORS)
        minor = rng.choice((8, 10, 11, 12))
        new_names = {
            "BILL-4127": f"{rng.choice(_PROJECTS)}-{rng.randrange(1_000, 9_999)}",
            "ISK": currency, '"IS"': f'"{market}"', "Iceland": country,
            "fin-import-7": f"{rng.choice(_QUEUES)}-{rng.randrange(10, 99)}",
            "INV-2026-118842": f"INV-2026-{rng.randrange(130_000, 999_999)}",
            "Petra": rng.choice(_PEOPLE), "X-Bill-Trace": rng.choice(_HEADERS),
            "UnknownCurrency": error,
            "Invoice.id": f"Invoice.{key}", r"Invoice\.id": rf"Invoice\.{key}",
            "1203": str(rows), "1171": str(rows - missing), "32 invoices": f"{missing} invoices",
            "3.9": f"3.{minor}", r"3\.9": rf"3\.{minor}",
        }  # fmt: skip
        return cls(new_names, rng.randrange(1, 6), rng)

    def replace_names(self, text: str) -> str:
        """Return a text with the new names."""
        if not self.new_names:
            return text
        words = map(re.escape, sorted(self.new_names, key=len, reverse=True))
        old = re.compile(rf"(?<![\w.])(?:{'|'.join(words)})(?!\d)")
        text = old.sub(lambda match: self.new_names[match[0]], text)
        text = _DATE.sub(lambda match: f"2026-03-{int(match[1]) - self.days_earlier:02d}", text)
        text = _DAY_OF_MARCH.sub(lambda m: f"{int(m[1]) - self.days_earlier} March", text)
        weekday = _WEEKDAYS[(1 - self.days_earlier) % 7]
        return text.replace("Tuesday", weekday)

    def replace_in_pattern(self, pattern: str) -> str:
        """Return the pattern that finds a fact under its new names."""
        if not self.new_names:
            return pattern
        # a class of digits holds no whole date that could be moved
        return self.replace_names(pattern.replace("2026-03-1[01]", "2026-03-10|2026-03-11"))

    def vary_pause(self, pause: float) -> float:
        """Return a pause of other length, from two thirds to one and a half, in seconds."""
        if self.random is None or pause > _LONGEST_PAUSE:
            return pause
        return pause * self.random.uniform(0.67, 1.5)
