"""Inspect's evaluation logs, `.json` and `.eval` (a zip): one session a sample, subagents' threads
as its children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.messages import Edit, Fault, Message, Text, ToolSchema, Usage
from ctxkit.readers.archives import open_json
from ctxkit.readers.damaged import each_of, noting
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import as_text, items, mapping, number, real, text, time, word
from ctxkit.readers.growing_logs import Said, Threads, said
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count
from ctxkit.readers.usages import to_schemas, to_stop, uncached

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "inspect-ai"
ALIASES = ("inspect",)
CAN = (
    "text, calls and results, tools, usage per call (cache reads and writes), times, compactions,"
    " subagents; samples"
)
CANNOT = "usage where the log has no model events"
_PASSED = {
    "state",
    "store",
    "sample_init",
    "span_begin",
    "span_end",
    "step",
    "tool",
    "score",
    "sandbox",
    "info",
    "logger",
}
_REFS = 500_000
"""References to pooled messages followed in a sample, besides one for every two bytes of file."""
_WORK = 50_000
"""Messages that come and go between a sample's prompts, besides one for every ten bytes of file."""


def sniff(source: Source) -> bool:
    """Say whether this is a zip with Inspect's members, or a document with `eval` and `status`."""
    if source.data.startswith(b"PK"):
        names = source.data[-(1 << 16) :] + source.data[: 1 << 12]
        return b"_journal/" in names or b"header.json" in names or b"samples/" in names
    document = source.document
    return type(document) is dict and type(document.get("eval")) is dict and "status" in document


def read(source: Source) -> list[Session]:
    """Return one session a sample and epoch, also of an unfinished archive without its header."""
    faults: list[Fault] = []
    if source.data.startswith(b"PK"):
        members = open_json(
            source,
            lambda n: n == "header.json" or n.startswith(("samples/", "_journal/start")),
            faults,
        )
        header = mapping(members.pop("header.json", None)) or mapping(
            members.pop("_journal/start.json", None)
        )
        members.pop("_journal/start.json", None)
        samples = [members[n] for n in sorted(members)]
    else:
        header = mapping(source.document)
        samples = items(header.get("samples"))
    out = [
        _sample(header, mapping(s), n, len(source.data))
        for n, s in enumerate(samples)
        if type(s) is dict
    ]
    if not out:
        raise ReadError(
            "the log has no samples." + "".join(f" {f.why}." for f in faults[:3]), source.path
        )
    out[0] = replace(out[0], faults=(*faults, *out[0].faults))
    return out


def _sample(header: dict[str, Any], sample: dict[str, Any], n: int, size: int) -> Session:
    told = mapping(header.get("eval"))
    reading = _Episode(sample, size)
    reading.take(items(sample.get("events")))
    threads = reading.close(items(sample.get("messages")))
    log, agent = threads[0] if threads else (ReaderLog(), None)
    id_ = f"{sample.get('id', n)}/{sample.get('epoch', 1)}"
    model = word(told.get("model"))
    base: dict[str, Any] = {
        "format": NAME,
        "product": "inspect-ai",
        "version": word(mapping(told.get("packages")).get("inspect_ai")),
    }
    children = tuple(
        x.session(id=f"{id_}/{i}", parent=id_, agent=a or "subagent", model=model, **base)
        for i, (x, a) in enumerate(threads[1:], 1)
    )
    return log.session(
        id=id_,
        agent=agent or "main",
        title=word(told.get("task")),
        started=time(told.get("created")),
        model=model,
        tools=reading.tools,
        children=children,
        skipped=reading.skipped,
        faults=tuple(reading.faults),
        details=_details(sample),
        **base,
    )


def _details(sample: dict[str, Any]) -> dict[str, Any]:
    scores = {
        k[:80]: mapping(v).get("value") for k, v in list(mapping(sample.get("scores")).items())[:20]
    }
    plain = {k: v for k, v in scores.items() if type(v) in (int, float, str, bool)}
    took = real(sample.get("total_time"))
    return {**({"scores": plain} if plain else {}), **({} if took is None else {"seconds": took})}


class _Episode:
    """The model events of a sample as threads, and its final messages where there are none."""

    def __init__(self, sample: dict[str, Any], size: int) -> None:
        self.skipped, self.faults = dict[str, int](), list[Fault]()
        self.tools: tuple[ToolSchema, ...] = ()
        self._attachments = mapping(sample.get("attachments"))
        self._pool = items(sample.get("message_pool")) or items(
            mapping(sample.get("events_data")).get("messages")
        )
        self._pooled: dict[int, list[Said]] = {}
        self._refs, self._work = _REFS + size // 2, _WORK + size // 10
        """What is left of the two bounds."""
        self._threads = Threads()
        self._asked: dict[str, str] = {}
        self._spans: dict[str, str] = {}
        self._compacted: dict[str, Any] | None = None

    def take(self, events: list[Any]) -> None:
        each_of(events, "event", self._event, self.faults)

    def _event(self, event: dict[str, Any]) -> None:
        kind = text(event.get("event"))
        if kind == "model":
            self._model(event)
        elif kind == "compaction":
            self._compacted = event
        elif kind == "span_begin":
            name = text(event.get("name")) if event.get("type") == "agent" else ""
            self._spans[text(event.get("id"))] = name or self._spans.get(
                text(event.get("parent_id")), ""
            )
        elif kind not in _PASSED:
            count(self.skipped, "event: " + (kind or "no name"))

    def _model(self, event: dict[str, Any]) -> None:
        output = mapping(event.get("output"))
        choice = mapping(next(iter(items(output.get("choices"))), None))
        begun, ended = time(event.get("timestamp")), time(event.get("completed"))
        took = real(event.get("working_time"))
        if took is None:
            took = real(output.get("time"))
        fields: dict[str, Any] = {
            "time": ended or begun,
            "usage": to_inspect_usage(output.get("usage")),
            "model": word(event.get("model")),
            "stop": to_stop(choice.get("stop_reason")),
            "latency": took,
            "error": text(event.get("error") or output.get("error"))[:2000] or None,
        }
        if fields["error"]:
            fields |= {"is_error": True, "stop": "error"}
        if not self.tools:
            self.tools = to_schemas(event.get("tools"))
        prompt = [s for raw in items(event.get("input")) for s in self._said(raw)] + self._referred(
            event
        )
        made = named(self._heard(choice.get("message"), **fields), self._asked) if choice else []
        reply = next((m for m in made if m.role == "assistant"), None) or Message(
            role="assistant", **fields
        )
        agent = self._spans.get(text(event.get("span_id"))) or None
        if self._threads.work > self._work:
            raise ValueError("prompts that change more than a log can tell")
        compacted, self._compacted = self._compacted, None
        thread = self._threads.call(prompt, reply, agent, compacted=compacted is not None)
        if compacted is not None:
            _mark(thread.log, thread.since, compacted)

    def _referred(self, event: dict[str, Any]) -> list[Said]:
        out: list[Said] = []
        for ref in items(event.get("input_refs")):
            first, stop = (number(n) for n in [*items(ref), None, None][:2])
            if first is None or stop is None:
                count(self.skipped, "reference: not a range")
                continue
            stop = min(stop, len(self._pool))
            self._refs -= max(stop - first, 0)
            if self._refs < 0 or len(out) > 2 * len(self._pool):
                raise ValueError("more references to pooled messages than a log can have")
            for i in range(first, stop):
                if i not in self._pooled:
                    self._pooled[i] = self._said(self._pool[i])
                out += self._pooled[i]
        return out

    def _said(self, raw: Any) -> list[Said]:
        return [said(m) for m in named(self._heard(raw), self._asked)]

    def _heard(self, raw: Any, **fields: Any) -> list[Message]:
        raw = self._resolved(mapping(raw), 0) if self._attachments else mapping(raw)
        made = to_messages(raw, ReaderLog(), self.skipped, **fields)
        error = mapping(raw.get("error"))
        if raw.get("role") == "assistant":
            made += _server_results(raw)
        if raw.get("role") == "tool":
            told = text(error.get("message"))
            parts = made[0].parts or ((Text(told),) if told else ())
            tool = made[0].tool or word(raw.get("function"))
            made[0] = replace(
                made[0], parts=parts, tool=tool, is_error=bool(error), error=told[:2000] or None
            )
        return [replace(m, id=text(raw.get("id"))) for m in made]

    def _resolved(self, value: Any, depth: int) -> Any:
        """Put attachments in the place of their references, in a message's own fields only."""
        if type(value) is str:
            if value.startswith("attachment://"):
                found = self._attachments.get(value[13:])
                return found if type(found) is str else value
            return value
        if depth > 6:
            return value
        if type(value) is dict:
            return {k: self._resolved(v, depth + 1) for k, v in value.items()}
        return [self._resolved(v, depth + 1) for v in value] if type(value) is list else value

    def close(self, messages: list[Any]) -> list[tuple[ReaderLog, str | None]]:
        """Return the threads, the main one first: it shows most of the final messages."""
        final: list[Said] = []
        for raw in messages:
            with noting(self.faults, 0, "message: "):
                final += self._said(raw)
        threads = self._threads.all
        main = max(threads, key=lambda t: t.common(final), default=None)
        if main is None or not main.common(final):
            log = ReaderLog()
            for _, m in final:
                log.add(replace(m, id=log.new_id(m.id)))
            return ([(log, None)] if final else []) + [(t.log, t.agent) for t in threads]
        main.finish(final)
        return [(main.log, main.agent), *((t.log, t.agent) for t in threads if t is not main)]


def _server_results(raw: dict[str, Any]) -> list[Message]:
    """Return what tools run by the provider gave: it stands in the reply's content."""
    out = []
    for part in map(mapping, items(raw.get("content"))):
        given = as_text(part.get("result")) if part.get("type") == "tool_use" else ""
        if given:
            own, tool = word(part.get("id")), word(part.get("name"))
            failed = bool(part.get("error"))
            parts = (Text(given),)
            out.append(
                Message(
                    role="tool",
                    id="",
                    parts=parts,
                    kind="server",
                    call_id=own,
                    tool=tool,
                    is_error=failed,
                )
            )
    return out


def _mark(log: ReaderLog, since: int, event: dict[str, Any]) -> None:
    """Tell an edit that a prompt showed what the log's compaction event says; if none, write it."""
    told: dict[str, Any] = {
        "method": word(event.get("type")),
        "tokens_before": number(event.get("tokens_before")),
        "tokens_after": number(event.get("tokens_after")),
        "time": time(event.get("timestamp")),
        "source": "recorded",
    }
    for i in range(since, len(log.entries)):
        entry = log.entries[i]
        if isinstance(entry, Edit):
            log.entries[i] = replace(
                entry, reason=word(event.get("source")) or "compaction", **told
            )
            return
    log.add(Edit(kind="summarised", id=log.new_id(), **told))


def to_inspect_usage(raw: Any) -> Usage | None:
    """Return a call's usage; if input + output is the total, the input holds the cached tokens."""
    raw = mapping(raw)
    if not raw:
        return None
    given, output = number(raw.get("input_tokens")), number(raw.get("output_tokens"))
    read = number(raw.get("input_tokens_cache_read"))
    write = number(raw.get("input_tokens_cache_write"))
    total = number(raw.get("total_tokens"))
    inside = total is None or (given or 0) + (output or 0) >= total
    return Usage(
        input_tokens=uncached(given, read, write) if inside else given,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=number(raw.get("reasoning_tokens")),
        cost_usd=real(raw.get("total_cost")),
    )
