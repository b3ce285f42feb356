"""The calls that were seen so far, put together into conversations."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import BadArguments, ReadError
from ctxkit.readers import anthropic, openai, openai_responses
from ctxkit.readers.fields import DAMAGE
from ctxkit.readers.source import Source
from ctxkit.recorders.replies import Kind, call_of, failure
from ctxkit.redaction import redacted
from ctxkit.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.recorders.taps import Exchange

_WAIT, _QUIET = 5.0, 0.4
"""Seconds to wait at the end for calls that are reported late: LiteLLM does so from another thread,
and for some providers says nothing when a call begins. At most `_WAIT`, at least until nothing was
heard for `_QUIET`; where LiteLLM is there and nothing was heard at all, `_WAIT`: its first report
loads what it reports with."""
_SETTINGS = (
    "model",
    "messages",
    "tools",
    "system",
    "input",
    "instructions",
    "previous_response_id",
)
_READERS = {"anthropic": anthropic.read, "openai-responses": openai_responses.read}


class Recording:
    """The calls seen so far. Conversations are told apart by their opening; the longest is the main
    session.

    Args:
        name: id of the main session.
    """

    def __init__(self, name: str) -> None:
        if not name.strip():
            raise BadArguments("Give the recording a name.")
        self.name = name
        self.since = time.time()
        self._calls: list[dict[str, Any]] = []
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._heard: dict[str, Exchange] = {}
        """Calls of LiteLLM as its HTTP client saw them, in case it reports nothing of them."""
        self.of_litellm = False
        """LiteLLM is there and may report."""
        self._news = time.monotonic()
        self._lock = threading.Lock()

    @property
    def session(self) -> Session:
        """The session so far; other talks than the longest are its children."""
        found = sorted(self.sessions, key=lambda s: -len(s.calls))
        if not found:
            return Session(id=self.name, format="live", product="litellm")
        main, *rest = found
        return msgspec.structs.replace(main, id=self.name, children=tuple(rest))

    @property
    def sessions(self) -> list[Session]:
        """Every conversation by itself, in the order in which they began.

        Calls of another service behind a path like an API's, which hold none, are left out.
        """
        with self._lock:
            calls = sorted(
                self._calls, key=lambda c: c["startTime"]
            )  # threads tell them in any order
        threads: dict[bytes, list[dict[str, Any]]] = {}
        after: dict[str, bytes] = {}
        """The conversation of each response that a later request can name."""
        for call in calls:
            before = after.get(str(call["request"].get("previous_response_id")))
            key = before if before is not None else _opening(call["kind"], call["request"])
            threads.setdefault(key, []).append(call)
            if ident := call["response"].get("id"):
                after[str(ident)] = key
        out = []
        for i, thread in enumerate(threads.values()):
            with suppress(ReadError):
                out.append(self._session(i, thread))
        return out

    def _session(self, i: int, calls: list[dict[str, Any]]) -> Session:
        name, kind = f"{self.name}-{i}", calls[0]["kind"]
        lines = [msgspec.json.encode(c, enc_hook=str) for c in calls]
        if kind == "openai":
            found = openai.conversation(map(msgspec.json.decode, lines), name)
        else:
            (found,) = _READERS[kind](Source(name, b"".join(line + b"\n" for line in lines)))
        return msgspec.structs.replace(found, format="live", product=calls[0]["via"], path_=None)

    def settle(self, left: int = 0) -> None:
        """Wait until every call has been reported, at most five seconds.

        Args:
            left: calls whose answer was left in the middle, of which no report may come.
        """
        until = time.monotonic() + _WAIT
        while time.monotonic() < until:
            missing = len(self._begun - self._ended - set(self._heard)) - left
            silent = self.empty and not (left or self._begun or self._heard)
            quiet = _WAIT if self.of_litellm and silent else _QUIET
            if missing <= 0 and time.monotonic() - self._news >= quiet:
                return
            time.sleep(0.02)

    def close(self) -> None:
        """Take the calls of LiteLLM of which only the HTTP client knows: streams that were left."""
        with self._lock:
            left, self._heard = self._heard, {}
            self._ended |= set(left)
        for heard in left.values():
            self._take(heard, "litellm")

    # -- what is told ------------------------------------------------------------------------------

    def begin(self, ident: str) -> None:
        """Note that LiteLLM sent a call."""
        with self._lock:
            self._begun.add(ident)
            self._news = time.monotonic()

    def end(self, ident: str, asked: Mapping[str, Any], response: Any, times: tuple[float, float],
            error: str | None) -> None:  # fmt: skip
        """Note what LiteLLM asked and got, but for late reports of an earlier recording."""
        if times[0] < self.since:
            return
        answer = _plain(response) if error is None else failure("openai", error)
        with self._lock:
            if ident in self._ended:
                return
            self._ended.add(ident)
            self._news = time.monotonic()
            if "choices" not in answer and ident in self._heard:
                return  # of another API than Chat Completions: its client has heard more
            self._heard.pop(ident, None)
        optional = asked.get("optional_params") or {}
        request = {k: asked.get(k) or optional.get(k) for k in _SETTINGS[:3]}
        request["messages"] = [_plain(m) for m in request["messages"] or ()]
        cost = asked.get("response_cost")
        more = {"response_cost": cost} if isinstance(cost, (int, float)) and cost else {}
        self._keep("openai", "litellm", request, answer, times, **more)

    def hear(self, heard: Exchange, ident: str | None) -> None:
        """Note an HTTP client's call; `ident`: one of LiteLLM's, which it mostly reports."""
        with self._lock:
            self._news = time.monotonic()
            if ident is not None:
                if ident not in self._ended:
                    self._heard[ident] = heard
                return
        self._take(heard, "http")

    def _take(self, heard: Exchange, via: str) -> None:
        told = (heard.kind, heard.url, heard.body)
        try:
            found = call_of(*told, heard.bytes, status=heard.status, error=heard.error)
        except DAMAGE:  # another service behind a path like an API's: the program goes on
            found = call_of(*told, b"", error="the answer is not of this API's kind")
        kind, asked, answer = found
        request = {k: asked[k] for k in _SETTINGS if k in asked}
        self._keep(kind, via, request, answer, (heard.began, heard.ended))

    def _keep(self, kind: Kind, via: str, request: dict[str, Any], response: dict[str, Any],
              times: tuple[float, float], **more: Any) -> None:  # fmt: skip
        said = {k: redacted(v) if k != "tools" else v for k, v in request.items()}
        call = {"kind": kind, "via": via, "request": said, "response": redacted(response), **more}
        with self._lock:
            self._calls.append({**call, "startTime": times[0], "endTime": times[1]})

    @property
    def empty(self) -> bool:
        """True where no call was seen."""
        return not self._calls


def _opening(kind: Kind, request: Mapping[str, Any]) -> bytes:
    """Return what tells talks apart: instructions, and the first words not by a model."""
    said = request.get("messages") or request.get("input") or ()
    if isinstance(said, str):
        said = [said]
    system = [m for m in said if isinstance(m, dict) and m.get("role") in ("system", "developer")]
    first = next((m for m in said if m not in system and _role(m) != "assistant"), None)
    told = [request.get("system"), request.get("instructions"), system, first]
    return msgspec.json.encode([kind, _unmarked(told)], enc_hook=str)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _unmarked(value: Any) -> Any:
    """Return a JSON value without marks for a provider's cache, which move from call to call."""
    if isinstance(value, dict):
        return {k: _unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [_unmarked(v) for v in value] if isinstance(value, list) else value


def _plain(value: Any) -> dict[str, Any]:
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if dump else dict(value or {})
