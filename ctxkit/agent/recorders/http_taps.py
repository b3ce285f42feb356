"""Listen to the calls that SDKs send through httpx, their streams included."""

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
"""openai 3 and anthropic 2 moved to the second; LiteLLM and older SDKs use the first."""
_taps_lock = threading.Lock()
_taps: list[HttpTap] = []
_undo_patches: list[Callable[[], None]] = []


@dataclass
class HttpExchange:
    """One request and what came of it."""

    kind: ApiKind
    url: str
    body: dict[str, Any]
    began: float
    litellm: bool
    """True where LiteLLM sent it."""
    data: list[bytes] = field(default_factory=list)
    status: int = 0
    encoding: str = ""
    error: str = ""
    ended: float = 0.0

    @property
    def bytes(self) -> bytes:
        """The answer so far, unpacked."""
        raw = b"".join(self.data)
        if not self.encoding:
            return raw
        with suppress(Exception):  # what was cut cannot always be unpacked
            import httpx

            return httpx.Response(
                200, headers={"content-encoding": self.encoding}, content=raw
            ).content
        return b""


class HttpTap:
    """One listener.

    Args:
        begun: told when a call is sent.
        over: told when its answer was read, left, or did not come.
    """

    def __init__(
        self, on_begin: Callable[[HttpExchange], None], on_end: Callable[[HttpExchange], None]
    ) -> None:
        self.begun, self._on_end = on_begin, on_end
        self.open: dict[int, HttpExchange] = {}

    def begin(self, exchange: HttpExchange) -> None:
        """Note a call that is sent."""
        self.open[id(exchange)] = exchange
        self.begun(exchange)

    def end(self, exchange: HttpExchange) -> None:
        """Note its end, once."""
        if self.open.pop(id(exchange), None) is not None:
            exchange.ended = exchange.ended or time.time()
            self._on_end(exchange)

    def finish(self) -> None:
        """Note the streams that were left without being closed."""
        for exchange in list(self.open.values()):
            if exchange.status:  # else nothing has come yet: it is no answer
                self.end(exchange)


@contextmanager
def install_tap(tap: HttpTap) -> Iterator[HttpTap]:
    """Let a tap hear every call of this process while the block runs."""
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
    """Put an ear into the clients of a library; return what takes it out again."""
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
    """Return the class of streams of a library that keep what is read of them."""

    class Tee(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, inner: Any, exchange: HttpExchange) -> None:
            self.inner, self.heard = inner, exchange

        def __iter__(self) -> Iterator[bytes]:
            for piece in self.inner:
                self.heard.data.append(piece)
                yield piece

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self.inner:
                self.heard.data.append(piece)
                yield piece

        def close(self) -> None:
            self.inner.close()
            _end_exchange(self.heard)

        async def aclose(self) -> None:
            await self.inner.aclose()
            _end_exchange(self.heard)

    return Tee


def _note_answer(exchange: HttpExchange | None, response: Any, tee: Any) -> Any:
    """Note an answer, or let its stream be kept as it is read; return it as the program gets it."""
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
    """Note a call that got no answer."""
    try:
        yield
    except BaseException as e:
        if exchange is not None:
            exchange.error = redact(f"{type(e).__name__}: {e}")[:1000]
            _end_exchange(exchange)
        raise


def _begin_exchange(request: Any) -> HttpExchange | None:
    """Note a request that is a call of a model; None for any other."""
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
    """Return True where a package is among the callers."""
    names = (f.f_globals.get("__name__") for f, _ in walk_stack(None))
    return any(str(name).partition(".")[0] == package for name in names)
