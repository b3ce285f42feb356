"""What Cline's and Roo's windows noted of requests: usage, model, what was left out, their end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from ctxkit.messages import Usage
from ctxkit.readers.fields import items, mapping, number, real, text, time, word
from ctxkit.readers.usages import uncached

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """One request to the model, as the window shows it."""

    time: float | None
    usage: Usage | None
    model: str | None
    cut: tuple[int, int]
    """First and last message of the API that it left out; (-1, -1): none."""
    after: int | None
    """Index of the last message of the API before it, where it is told."""
    failed: str
    """`aborted`, `error` or empty."""
    is_roo: bool


def requests(window: list[Any]) -> list[TaskRequest]:
    """Return the requests among the window's messages, in order."""
    out = []
    for raw in map(mapping, window):
        if raw.get("say") != "api_req_started":
            continue
        try:
            told = mapping(_decode(text(raw.get("text")) or "{}"))
        except (msgspec.DecodeError, ValueError, RecursionError):
            told = {}
        out.append(_request(raw, told))
    return out


def _request(raw: dict[str, Any], told: dict[str, Any]) -> TaskRequest:
    cut = [number(n) for n in items(raw.get("conversationHistoryDeletedRange"))]
    first, last = (cut[0], cut[1]) if len(cut) == 2 and None not in cut else (-1, -1)
    after = raw.get("conversationHistoryIndex")
    ended = text(told.get("cancelReason"))
    roo = "apiProtocol" in told
    return TaskRequest(
        time=time(raw.get("ts")),
        usage=_usage(told, roo=roo),
        model=word(mapping(raw.get("modelInfo")).get("modelId")),
        cut=(first if first is not None else -1, last if last is not None else -1),
        after=after if type(after) is int and -1 <= after < 1 << 32 else None,
        failed="" if not ended else "aborted" if ended == "user_cancelled" else "error",
        is_roo=roo,
    )


def _usage(told: dict[str, Any], *, roo: bool) -> Usage | None:
    given, output = number(told.get("tokensIn")), number(told.get("tokensOut"))
    read, write = number(told.get("cacheReads")), number(told.get("cacheWrites"))
    cost = real(told.get("cost"))
    if given is None and output is None and cost is None:
        return None
    return Usage(
        input_tokens=uncached(given, read, write) if roo else given,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        cost_usd=cost,
    )


def usages(talk: list[Any], found: list[TaskRequest]) -> dict[int, TaskRequest]:
    """Return the request of each reply by the reply's index: by what it names, else by time, else
    by order.

    By order only where there are as many replies as requests: a request that failed may have no
    reply.
    """
    replies = [i for i, m in enumerate(talk) if mapping(m).get("role") == "assistant"]
    if any(r.after is not None for r in found):
        known = set(replies)
        return {r.after + 2: r for r in found if r.after is not None and r.after + 2 in known}
    times = {i: when for i in replies if (when := time(mapping(talk[i]).get("ts"))) is not None}
    if len(times) == len(replies) and all(r.time is not None for r in found):
        return _by_time(times, found)
    return dict(zip(replies, found, strict=True)) if len(replies) == len(found) else {}


def _by_time(times: dict[int, float], found: list[TaskRequest]) -> dict[int, TaskRequest]:
    out: dict[int, TaskRequest] = {}
    waiting = sorted(found, key=lambda r: r.time or 0.0)
    at = 0
    for i, when in sorted(times.items()):
        last = None
        while at < len(waiting) and (waiting[at].time or 0.0) <= when:
            last = waiting[at]
            at += 1
        if last is not None:
            out[i] = last
    return out
