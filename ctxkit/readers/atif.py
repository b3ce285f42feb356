"""ATIF trajectories (Harbor): steps in which a call and its results are one, with usage and money
of each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Fault, Image, Message, Part, Role, Thinking, ToolCall, Usage
from ctxkit.readers.damaged import noting
from ctxkit.readers.fields import arguments, as_text, items, mapping, number, real, text, time, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count, to_parts
from ctxkit.readers.usages import to_schemas, to_stop

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "atif"
ALIASES = ("harbor",)
CAN = (
    "text, reasoning, calls and results, usage per call (cache reads), money, times, tools,"
    " subagents inside the file"
)
CANNOT = "cache writes; sizes of a compaction (its mark is there, of terminus-2)"
BLIND = ("tool errors",)
TRAITS = (("all", "money is the log's own; summaries are not priced: estimated"),)
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_DEPTH = 16


def sniff(source: Source) -> bool:
    """Say whether the document names an ATIF version."""
    document = mapping(source.document)
    return (
        text(document.get("schema_version")).startswith("ATIF")
        and type(document.get("steps")) is list
    )


def read(source: Source) -> list[Session]:
    """Return the one trajectory of the file, with those embedded in it as children."""
    return [_session(mapping(source.document), source.path.stem, 0)]


def _session(document: dict[str, Any], name: str, depth: int) -> Session:
    agent = mapping(document.get("agent"))
    teller = _Teller(word(agent.get("model_name")))
    faults = teller.log.faults
    for n, raw in enumerate(items(document.get("steps"))):
        with noting(faults, 0, f"step {n + 1}: "):
            teller.take(mapping(raw))
    teller.compact(None)
    below = [d for d in items(document.get("subagent_trajectories")) if type(d) is dict]
    if depth >= _DEPTH and below:
        faults.append(Fault(0, f"subagents nested more than {_DEPTH} deep are left out"))
        below = []
    id_ = text(document.get("session_id")) or name
    children = tuple(_session(d, f"{name}/{i}", depth + 1) for i, d in enumerate(below))
    totals = mapping(document.get("final_metrics"))
    details = {
        "cost_usd": real(totals.get("total_cost_usd")),
        "continued": word(document.get("continued_trajectory_ref")),
    }
    return teller.log.session(
        id=id_,
        format=NAME,
        product=word(agent.get("name")),
        version=word(agent.get("version")),
        agent=text(agent.get("name")) or "main",
        title=word(document.get("notes")),
        model=word(agent.get("model_name")),
        tools=to_schemas(agent.get("tool_definitions")),
        started=next((e.time for e in teller.log.entries if e.time), None),
        children=tuple(replace(c, parent=c.parent or id_) for c in children),
        parent=word(mapping(agent.get("extra")).get("parent_session_id")),
        details={k: v for k, v in details.items() if v is not None},
    )


class _Teller:
    """Writes steps as messages: an agent's step is a reply and then the results of its calls."""

    def __init__(self, model: str | None) -> None:
        self.log = ReaderLog()
        self._model = model
        self._first: str | None = None
        """Id of the first prompt."""
        self._due: Edit | None = None
        """A compaction whose hand-off has yet to come."""

    def take(self, raw: dict[str, Any]) -> None:
        role = _ROLES.get(text(raw.get("source")))
        if self._due is not None:
            self.compact(raw if role == "user" else None)
            if role == "user":
                return
        results = items(mapping(raw.get("observation")).get("results"))
        when = time(raw.get("timestamp"))
        if role == "assistant":
            self._reply(raw, when)
            asked = map(mapping, items(raw.get("tool_calls")))
            calls = {text(c.get("tool_call_id")): text(c.get("function_name")) for c in asked}
            for r in results:
                self._result(mapping(r), calls, when)
        elif role is None:
            count(self.log.skipped, "step: " + (text(raw.get("source")) or "no source"))
        elif role == "system" and any(
            items(mapping(r).get("subagent_trajectory_ref")) for r in results
        ):
            self._compaction(raw, results, when)
        else:
            kind = "injected" if role == "system" and self.log.entries else ""
            said, id_ = tuple(_parts(raw.get("message"), self.log.skipped)), self._id(raw)
            if role == "user" and self._first is None:
                self._first = id_
            who: Role = "system" if role == "system" else "user"
            self.log.add(Message(role=who, id=id_, parts=said, time=when, kind=kind))

    def _id(self, raw: dict[str, Any]) -> str:
        step = number(raw.get("step_id"))
        return self.log.new_id(None if step is None else f"step-{step}")

    def _reply(self, raw: dict[str, Any], when: float | None) -> None:
        metrics = mapping(raw.get("metrics"))
        extra = mapping(metrics.get("extra"))
        took = real(extra.get("latency_ms"))
        copied = raw.get("is_copied_context") is True
        thought = word(raw.get("reasoning_content"))
        parts: list[Part] = [Thinking(thought)] if thought else []
        parts += _parts(raw.get("message"), self.log.skipped)
        self.log.add(
            Message(
                role="assistant",
                id=self._id(raw),
                parts=(
                    *parts,
                    *map(_call, [c for c in items(raw.get("tool_calls")) if type(c) is dict]),
                ),
                time=when,
                kind="copied" if copied else "",
                usage=_usage(metrics),
                model=word(raw.get("model_name")) or self._model,
                stop=to_stop(extra.get("finish_reason")),
                latency=None if took is None else took / 1000,
            )
        )

    def _result(self, raw: dict[str, Any], calls: dict[str, str], when: float | None) -> None:
        asked = word(raw.get("source_call_id")) or (next(iter(calls)) if len(calls) == 1 else None)
        refs = [mapping(r).get("session_id") for r in items(raw.get("subagent_trajectory_ref"))]
        sessions = [r for r in refs if type(r) is str]
        self.log.say(
            "tool" if calls else "user",
            _parts(raw.get("content"), self.log.skipped),
            time=when,
            kind="" if calls else "observation",
            tool=calls.get(asked or ""),
            call_id=asked,
            details={"sessions": sessions} if sessions else {},
        )

    def _compaction(self, raw: dict[str, Any], results: list[Any], when: float | None) -> None:
        """Note terminus-2's summary: only the first prompt stays; the next one is the hand-off."""
        refs = [
            mapping(r)
            for res in results
            for r in items(mapping(res).get("subagent_trajectory_ref"))
        ]
        self._due = Edit(
            kind="summarised",
            id=self._id(raw),
            reason=as_text(raw.get("message"))[:200],
            method="handoff",
            time=when,
            details={"sessions": [s for r in refs if (s := word(r.get("session_id")))]},
        )

    def compact(self, handoff: dict[str, Any] | None) -> None:
        """Write the compaction that is due, with its hand-off where there is one."""
        if self._due is None:
            return
        edit, self._due = self._due, None
        if handoff is not None:
            said = tuple(_parts(handoff.get("message"), self.log.skipped))
            summary = Message(
                role="summary",
                id=self._id(handoff),
                parts=said,
                time=time(handoff.get("timestamp")),
            )
            edit = replace(edit, inserted=(summary,))
        self.log.compact(edit, () if self._first is None else (self._first,))


def _parts(raw: Any, skipped: dict[str, int]) -> list[Part]:
    out = to_parts(raw, skipped)[0]
    given = items(raw)
    for i, part in enumerate(out):
        source = mapping(mapping(given[i]).get("source")) if i < len(given) else {}
        if isinstance(part, Image) and word(source.get("path")):
            out[i] = Image(
                text(source.get("media_type")) or "image/png", url=text(source.get("path"))
            )
    return out


def _call(raw: dict[str, Any]) -> ToolCall:
    args, written = arguments(raw.get("arguments"))
    return ToolCall(text(raw.get("tool_call_id")), text(raw.get("function_name")), args, written)


def _usage(raw: dict[str, Any]) -> Usage | None:
    whole, cached = number(raw.get("prompt_tokens")), number(raw.get("cached_tokens"))
    output, cost = number(raw.get("completion_tokens")), real(raw.get("cost_usd"))
    if whole is None and output is None and cost is None:
        return None
    fresh = None if whole is None else max(whole - (cached or 0), 0)
    return Usage(input_tokens=fresh, cache_read_tokens=cached, output_tokens=output, cost_usd=cost)
