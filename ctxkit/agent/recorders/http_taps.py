"""Observation of the model calls that SDKs send through httpx, streams included."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.redaction import redact
from ctxkit.agent.recorders.api_responses import ApiKind, detect_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

_LIBRARIES = ("httpx", "httpx2")
"""openai 3 and anthropic 2 use the second; LiteLLM and older SDKs use the first."""
_taps_lock = threading.Lock()
_taps: list[HttpExchangeCallbacks] = []
_undo_patches: list[Callable[[], None]] = []


@dataclass
class HttpExchange:
    """One request and its response."""

    kind: ApiKind
    url: str
    body: dict[str, Any]
    began: float
    litellm: bool
    """True if LiteLLM sent it."""
    data: list[bytes] = field(default_factory=list)
    status: int = 0
    encoding: str = ""
    error: str = ""
    ended: float = 0.0

    @property
    def bytes(self) -> bytes:
        """The response so far, decompressed."""
        raw = b"".join(self.data)
        if not self.encoding:
            return raw
        with suppress(Exception):  # a truncated body cannot always be decompressed
            import httpx

            return httpx.Response(
                200, headers={"content-encoding": self.encoding}, content=raw
            ).content
        return b""


class HttpExchangeCallbacks:
    """An observer of HTTP exchanges.

    Args:
        on_begin: called when a request is sent.
        on_end: called once, when its response was read, abandoned, or did not come.
    """

    def __init__(
        self, on_begin: Callable[[HttpExchange], None], on_end: Callable[[HttpExchange], None]
    ) -> None:
        self._on_begin, self._on_end = on_begin, on_end
        self.open: dict[int, HttpExchange] = {}

    def begin(self, exchange: HttpExchange) -> None:
        """Note a request that is sent."""
        self.open[id(exchange)] = exchange
        self._on_begin(exchange)

    def end(self, exchange: HttpExchange) -> None:
        """Note the end of an exchange, once."""
        if self.open.pop(id(exchange), None) is not None:
            exchange.ended = exchange.ended or time.time()
            self._on_end(exchange)

    def finish(self) -> None:
        """End the streams that were abandoned without being closed."""
        for exchange in list(self.open.values()):
            if exchange.status:  # without a status there is no response yet
                self.end(exchange)


# `send` of the sync and async clients is patched once for all taps, and restored with the last one.
# A response that is streamed gets a tee: its bytes are kept as the program reads them, so neither
# the order nor the time of reading changes. A stream that the program abandons is never closed; its
# exchange ends with the block (`HttpExchangeCallbacks.finish`).


@contextmanager
def install_tap(tap: HttpExchangeCallbacks) -> Iterator[HttpExchangeCallbacks]:
    """Let a tap observe every call of this process inside the block.

    Args:
        tap: told when a request begins, and when its response ended or failed.

    Yields:
        The tap; clients are patched while at least one tap is installed.
    """
    with _taps_lock:
        if not _taps:
            _undo_patches.extend(
                _patch_clients(import_module(n)) for n in _LIBRARIES if find_spec(n)
            )
        _taps.append(tap)
    try:
        yield tap
    finally:
        with _taps_lock:
            _taps.remove(tap)
            if not _taps:
                while _undo_patches:
                    _undo_patches.pop()()


def _patch_clients(library: Any) -> Callable[[], None]:
    """Patch the clients of a library; return a function that undoes it."""
    sync_send, async_send, tee = (
        library.Client.send,
        library.AsyncClient.send,
        _make_tee_stream(library),
    )

    def send(self: Any, request: Any, *, stream: bool = False, **more: Any) -> Any:
        exchange = _begin_exchange(request)
        with _note_failure(exchange):
            return _note_answer(
                exchange, sync_send(self, request, stream=stream, **more), tee if stream else None
            )

    async def asend(self: Any, request: Any, *, stream: bool = False, **more: Any) -> Any:
        exchange = _begin_exchange(request)
        with _note_failure(exchange):
            response = await async_send(self, request, stream=stream, **more)
            return _note_answer(exchange, response, tee if stream else None)

    def undo() -> None:
        library.Client.send, library.AsyncClient.send = sync_send, async_send

    library.Client.send, library.AsyncClient.send = send, asend
    return undo


def _make_tee_stream(library: Any) -> Any:
    """Return a stream class of a library that keeps what is read of it."""

    class Tee(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, inner: Any, exchange: HttpExchange) -> None:
            self.inner, self.exchange = inner, exchange

        def __iter__(self) -> Iterator[bytes]:
            for piece in self.inner:
                self.exchange.data.append(piece)
                yield piece

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self.inner:
                self.exchange.data.append(piece)
                yield piece

        def close(self) -> None:
            self.inner.close()
            _end_exchange(self.exchange)

        async def aclose(self) -> None:
            await self.inner.aclose()
            _end_exchange(self.exchange)

    return Tee


def _note_answer(exchange: HttpExchange | None, response: Any, tee: Any) -> Any:
    """Note a response, or wrap its stream so that it is kept; return the program's response."""
    if exchange is None:
        return response
    exchange.status = response.status_code
    if tee is None:
        exchange.data.append(response.content)
        _end_exchange(exchange)
    else:
        exchange.encoding = response.headers.get("content-encoding", "")
        response.stream = tee(response.stream, exchange)
    return response


@contextmanager
def _note_failure(exchange: HttpExchange | None) -> Iterator[None]:
    """Note a request that got no response."""
    try:
        yield
    except BaseException as e:
        if exchange is not None:
            exchange.error = redact(f"{type(e).__name__}: {e}")[:1000]
            _end_exchange(exchange)
        raise


def _begin_exchange(request: Any) -> HttpExchange | None:
    """Note a request to a model API; return None for any other request."""
    try:
        body = msgspec.json.decode(request.content)
    except Exception:  # noqa: BLE001  a body that streams, or no JSON: no call
        return None
    url = str(request.url)
    kind = detect_api(url, body)
    if kind is None:
        return None
    exchange = HttpExchange(kind, url, body, time.time(), _is_called_from("litellm"))
    for tap in tuple(_taps):
        tap.begin(exchange)
    return exchange


def _end_exchange(exchange: HttpExchange) -> None:
    for tap in tuple(_taps):
        tap.end(exchange)


def _is_called_from(package: str) -> bool:
    """Return True if a package is among the callers."""
    names = (f.f_globals.get("__name__") for f, _ in walk_stack(None))
    return any(str(name).partition(".")[0] == package for name in names)
