"""Spans of model calls, each with its whole prompt, as sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Fault, Message, ToolSchema
from ctxkit.readers.damaged import noting
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.exported_spans import ExportedSpan
from ctxkit.readers.fields import DAMAGE, items, mapping, why, word
from ctxkit.readers.growing_logs import Said, Threads, one_session, said
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count
from ctxkit.readers.trace_spans import content, model_of, parsed, to_span_usage
from ctxkit.readers.usages import to_schemas, to_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session import Session


def from_spans(
    raw: Iterable[tuple[int, dict[str, Any]]], stem: str, name: str, faults: Iterable[Fault] = ()
) -> list[Session]:
    """Return one session a conversation (or trace, where none is named), threads of other agents as
    its children.

    Args:
        raw: spans in the words of OpenTelemetry's or OpenInference's conventions, each with the
            line it stands in.
        stem: what a session without a name is called.
        name: the format.
        faults: what could not be read before.
    """
    faults, skipped = list(faults), dict[str, int]()
    spans = _in_order(_each(raw, faults, skipped))
    agents = {s.id: s for s in spans}
    groups: dict[str, list[ExportedSpan]] = {}
    for s in spans:
        groups.setdefault(s.conversation(agents), []).append(s)
    for talk in [n for n, some in groups.items() if not any(s.is_call for s in some)]:
        if len(groups) > 1:  # tools and the like of a trace whose calls name their conversation
            for s in groups.pop(talk):
                count(skipped, "span: " + (s.kind or "of another kind"))
    out = [
        replace(_session(talk, some, agents, stem), format=name) for talk, some in groups.items()
    ]
    if out:
        out[0] = replace(
            out[0], faults=(*faults, *out[0].faults), skipped=_summed(skipped, out[0].skipped)
        )
    return out


def _each(
    raw: Iterable[tuple[int, dict[str, Any]]], faults: list[Fault], skipped: dict[str, int]
) -> Iterator[ExportedSpan]:
    for line, one in raw:
        try:
            yield ExportedSpan(one)
        except DAMAGE as e:
            faults.append(Fault(line, why(e)))
            count(skipped, "span: damaged")


def _in_order(spans: Iterable[ExportedSpan]) -> list[ExportedSpan]:
    """Return spans by their begin; one without a time stays behind the one written before it."""
    begun, placed = 0.0, list[tuple[float, ExportedSpan]]()
    for s in spans:
        begun = begun if s.begun is None else s.begun
        placed.append((begun, s))
    return [s for _, s in sorted(placed, key=lambda pair: pair[0])]


def _summed(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}


def _session(
    name: str, spans: list[ExportedSpan], all_: dict[str, ExportedSpan], stem: str
) -> Session:
    threads, skipped, faults = Threads(), dict[str, int](), list[Fault]()
    asked, tools = dict[str, str](), tuple[ToolSchema, ...]()
    for s in spans:
        if not s.is_call:
            count(skipped, "span: " + (s.kind or "of another kind"))
            continue
        with noting(faults, 0, f"span {s.id[:40]}: "):
            prompt, reply = content(s.attributes, s.events)
            heard = [
                said(m)
                for r in prompt
                for m in _summed_up(r, named(to_messages(r, ReaderLog(), skipped), asked))
            ]
            _call(threads, heard, _reply(s, reply, skipped, asked), s, s.agent(all_))
            tools = tools or to_schemas(parsed(s.attributes.get("gen_ai.tool.definitions")))
    product = next((w for s in spans if (w := word(s.attributes.get("service.name")))), None)
    about = {"product": product, "started": spans[0].begun} if threads.all else {}
    made = one_session(threads.all, name or stem, tools, format="", **about)
    return replace(made, skipped=skipped, faults=tuple(faults))


def _summed_up(raw: Any, made: list[Message]) -> list[Message]:
    """A message with a part of type `compaction` stands for what was compacted."""
    marked = any(mapping(p).get("type") == "compaction" for p in items(mapping(raw).get("parts")))
    return [replace(m, role="summary") if marked and m.role != "tool" else m for m in made]


def _call(
    threads: Threads, heard: list[Said], reply: Message, s: ExportedSpan, agent: str | None
) -> None:
    """Write one call; what its span marks as compacted makes the edit a recorded one."""
    flagged = s.attributes.get("gen_ai.conversation.compacted") is True
    summed = any(m.role == "summary" for _, m in heard)
    if not (flagged or summed):
        threads.call(heard, reply, agent).compacted = False
        return
    latest = threads.latest(agent)
    if flagged and not heard and latest is not None and not latest.compacted:
        # no content: the mark is all there is
        own = latest.log.new_id()
        latest.log.add(
            Edit(
                kind="summarised",
                id=own,
                method="compacted",
                reason="what it took is not in the trace",
            )
        )
    alone = flagged and not (latest is not None and latest.compacted and summed)
    thread = threads.call(heard, reply, agent, compacted=True)
    thread.compacted = flagged
    log = thread.log
    for i in range(thread.since, len(log.entries)):
        entry = log.entries[i]
        if isinstance(entry, Message) and entry.role == "summary":  # of what no prompt had
            entry = Edit(kind="summarised", id=log.new_id(), inserted=(entry,))
        if isinstance(entry, Edit) and (alone or any(m.role == "summary" for m in entry.inserted)):
            told: dict[str, Any] = {"source": "recorded", "method": "compacted", "reason": ""}
            log.entries[i] = replace(entry, kind="summarised", time=s.begun, **told)


def _reply(
    s: ExportedSpan, reply: list[Any], skipped: dict[str, int], asked: dict[str, str]
) -> Message:
    heard = [m for r in reply for m in named(to_messages(r, ReaderLog(), skipped), asked)]
    why_ = parsed(s.attributes.get("gen_ai.response.finish_reasons"))
    stop = next(iter(items(why_)), None) or next(
        (mapping(r).get("finish_reason") for r in reply), None
    )
    return Message(
        role="assistant",
        id=s.id,
        parts=tuple(p for m in heard if m.role == "assistant" for p in m.parts),
        time=s.ended or s.begun,
        usage=to_span_usage(s.attributes),
        model=model_of(s.attributes),
        latency=s.ended - s.begun if s.begun and s.ended and s.ended >= s.begun else None,
        stop="error" if s.failed else to_stop(stop),
        is_error=s.failed,
        error=word(s.attributes.get("error.type")) or s.why,
    )
