"""Sessions of Pi and its family, versions 1 to 3: read as an entry tree, written as version 3."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.fields import (
    DAMAGE_ERRORS,
    as_dict,
    as_str,
    count_or_none,
    describe_damage,
    format_timestamp,
    parse_timestamp,
    require_field,
    str_or_none,
)
from ctxkit.formats.losses import count_losses
from ctxkit.formats.pi_messages import (
    EntryTree,
    apply_marks,
    encode_compaction,
    encode_entry,
    encode_header,
    encode_line,
    encode_message,
    is_agent_visible,
    parse_bash_message,
    parse_pi_parts,
    parse_pi_usage,
    parse_reply,
    parse_result,
)
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.session.messages import Edit, Fault, Message, Part, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session


NAME = "pi"
ALIASES = ("openclaw", "fased", "ai")
CAN = (
    "text, thinking, calls and results, usage per call (cache reads and writes), money, times,"
    " branches, compactions"
)
CANNOT = "system prompt, tool schemas"
TRAITS = (
    (
        "all",
        (
            "calls of broken-off replies were not run and count all the same; a failed call's zeros"
            " are missing"
        ),
    ),
    ("1 to 3", "summaries are mostly not priced: estimated"),
    ("all", "money is the log's own; $0 (a free model, or one without a price) is missing"),
)


def sniff(source: Source) -> bool:
    """Say whether the first lines are Pi's header, Pi's entries, or bare messages of early ai."""
    for record in source.head[:4]:
        kind = record.get("type")
        if kind == "session":
            return type(record.get("id")) is str or "cwd" in record or "version" in record
        message = record.get("message") if kind == "message" else record if kind is None else None
        if type(message) is dict and as_str(message.get("role")) in MESSAGE_ROLES:
            return "parentId" in record or "stopReason" in message or _is_pi(message)
    return False


def _is_pi(message: dict[str, Any]) -> bool:
    return message["role"] not in ("user", "assistant") or type(message.get("timestamp")) is int


def read(source: Source) -> list[Session]:
    """Read the one session of a file; entries that are damaged are counted and the rest is kept."""
    return [EntryReader(source).session(NAME)]


MESSAGE_ROLES = {
    "user",
    "assistant",
    "toolResult",
    "bashExecution",
    "custom",
    "hookMessage",
    "branchSummary",
}


class EntryReader:
    """A file of entries, read while its lines go by.

    Raises:
        ReadError: there is neither a header nor an entry.
    """

    def __init__(self, source: Source) -> None:
        self.name = source.path.stem
        self.log = SessionBuilder()
        self.faults = list(source.faults)
        self.skipped: Counter[str] = Counter()
        self.header: dict[str, Any] = {}
        self.places: dict[str, int] = {}
        """Entry id to the index of the entry in the log at or before it."""
        self.unrun: dict[str, tuple[int, tuple[Part, ...]]] = {}
        """Calls of failed replies: id to the reply's index and its whole parts."""
        self.lines: list[tuple[int, int]] = []
        """Version 1: line counted from 0 (the header is 0) to the index of its entry."""
        self.title: str | None = None
        self.model: str | None = None
        self.effort: str | None = None
        """How much the model is set to think, where the file says so."""
        self.tree = False
        self.headless = False
        """True where the first entry follows one that is not in the file."""
        self.floor = 0
        """Everything before this index was taken by a compaction."""
        for line, record in source.records:
            try:
                self.entry(line, record)
            except DAMAGE_ERRORS as e:
                self.faults.append(Fault(line, describe_damage(e)))
        if not self.log.entries and not self.header:
            raise ReadError(
                "expected a header of type session, or entries; found none.", source.path
            )

    @property
    def is_early(self) -> bool:
        """True for versions 1 and 2, which sent what an aborted reply had said."""
        version = self.header.get("version")
        return not (type(version) is int and version >= 3)

    def entry(self, line: int, record: dict[str, Any]) -> None:
        """Put an entry in its place in the tree."""
        kind = record.get("type")
        if kind == "session":
            if self.header:
                self.skipped["session"] += 1
            else:
                self.header = record
                self.effort = str_or_none(record.get("thinkingLevel"))
            return
        own = record.get("id")
        if "parentId" in record:
            self.tree = True
            self._stand(line, record["parentId"])
        elif self.tree and self.log.at != len(self.log.entries) - 1:
            self.log.stand(len(self.log.entries) - 1)
        try:
            self.take(line, kind, record)
        finally:  # a damaged entry is a step of the tree all the same
            if type(own) is str:
                self.places[own] = self.log.at
            self.lines.append((line - 1, self.log.at))

    def _stand(self, line: int, parent: Any) -> None:
        if parent is None:
            at: int | None = -1
            if self.log.entries and not self.places:
                at = None
        else:
            at = self.places.get(parent) if type(parent) is str else None
        if at is None:
            self.headless = self.headless or not self.places
            self.faults.append(
                Fault(
                    line, "expected 'parentId' to name an entry before this one; taken as the last"
                )
            )
        elif at != self.log.at and not self.log.stand(at):
            self.faults.append(
                Fault(line, "branches too often; taken as following the entry before")
            )

    def take(self, line: int, kind: Any, record: dict[str, Any]) -> None:
        """Add what an entry says; count it where it says nothing to the model."""
        if kind == "message":
            self.message(record, require_field(record, "message", dict))
        elif kind == "compaction":
            self.compaction(line, record)
        elif kind == "branch_summary":
            self._said(
                record,
                "branch_summary",
                as_str(record.get("summary")),
                {"fromId": record.get("fromId")},
            )
        elif kind == "custom_message":
            self._said(
                record, "custom", record.get("content"), {"customType": record.get("customType")}
            )
        elif kind is None and record.get("role") in MESSAGE_ROLES:
            self.message(record, record)
        else:
            self.skipped[kind if type(kind) is str else "no type"] += 1
            if kind == "session_info":
                self.title = (
                    str_or_none(record.get("name"))
                    or str_or_none(record.get("title"))
                    or self.title
                )
            elif kind == "model_change":
                self.model = str_or_none(record.get("modelId")) or self.model
            elif kind == "thinking_level_change":
                self.effort = str_or_none(record.get("thinkingLevel")) or self.effort

    def message(self, record: dict[str, Any], m: dict[str, Any]) -> None:
        """Add a message by its role."""
        role = m.get("role")
        if role == "assistant":
            self._reply(record, m)
        elif role == "toolResult":
            self._result(record, m)
        elif role in ("user", "custom", "hookMessage"):
            kind = "" if role == "user" else "custom"
            self._said(
                record,
                kind,
                m.get("content"),
                {"customType": m["customType"]} if "customType" in m else {},
                m,
            )
        elif role == "bashExecution":
            self.log.add(parse_bash_message(record, m, self.log.new_id(record.get("id"))))
        elif role in ("branchSummary", "compactionSummary"):
            self._said(
                record,
                "branch_summary" if role == "branchSummary" else "summary",
                m.get("summary"),
                {},
                m,
            )
        else:
            name = f"message {role}" if type(role) is str else "message without role"
            self.skipped[name] += 1

    def _reply(self, record: dict[str, Any], m: dict[str, Any]) -> None:
        own = self.log.new_id(record.get("id"))
        reply, whole = parse_reply(record, m, own, is_early=self.is_early)
        for c in whole:
            if type(c) is ToolCall:
                self.unrun[c.id] = (len(self.log.entries), whole)
        if self.effort is not None:
            reply = replace(reply, details=reply.details | {"effort": self.effort})
        self.log.add(reply)

    def _result(self, record: dict[str, Any], m: dict[str, Any]) -> None:
        visible, call = is_agent_visible(m), str_or_none(m.get("toolCallId"))
        if call in self.unrun:  # it was run all the same
            index, whole = self.unrun.pop(call)
            reply = self.log.entries[index]
            if type(reply) is Message:
                details = {k: v for k, v in reply.details.items() if k != "calls_not_run"}
                self.log.replace(index, replace(reply, parts=whole, details=details))
                visible = visible and reply.visible
        self.log.add(parse_result(record, m, self.log.new_id(record.get("id")), visible=visible))

    def _said(
        self,
        record: dict[str, Any],
        kind: str,
        content: Any,
        details: dict[str, Any],
        m: dict[str, Any] | None = None,
    ) -> None:
        said = Message(
            role="summary" if kind == "summary" else "user",
            id=self.log.new_id(record.get("id")),
            kind="" if kind == "summary" else kind,
            parts=parse_pi_parts(content),
            time=parse_timestamp(record.get("timestamp"))
            or parse_timestamp((m or {}).get("timestamp")),
            visible=m is None or is_agent_visible(m),
            details={k: v for k, v in details.items() if v is not None},
        )
        self.log.add(said if m is None else apply_marks(said, m))

    def compaction(self, line: int, record: dict[str, Any]) -> None:
        """Put the summary in place of all before the first kept entry; if unknown, none is kept."""
        log, edit_id = self.log, self.log.new_id(record.get("id"))
        first = self._first_kept(line, record)
        gone, again = self._taken(line, first)
        when = parse_timestamp(record.get("timestamp"))
        summary = Message(
            role="summary",
            id=log.new_id(f"{edit_id}-summary"),
            parts=(Text(as_str(record.get("summary"))),),
            time=when,
        )
        edit = Edit(
            kind="summarised",
            id=edit_id,
            targets=gone,
            inserted=(summary, *again),
            method="hook" if record.get("fromHook") is True else "summary",
            time=when,
            tokens_before=count_or_none(record.get("tokensBefore")),
            tokens_after=count_or_none(record.get("tokensAfter")),
            usage=parse_pi_usage(record.get("usage")),
            details=as_dict(record.get("details")),
        )
        log.add(edit)
        self.floor = len(log.entries) if first is None else max(first, self.floor)

    def _taken(self, line: int, first: int | None) -> tuple[tuple[str, ...], tuple[Message, ...]]:
        """Return the ids that a compaction takes, and the messages that it brings back."""
        log = self.log
        if not log.may_edit():
            self.faults.append(Fault(line, TOO_MANY_COMPACTIONS))
            return (), ()
        if first is None:
            return tuple(log.shown), ()
        return tuple(i for i in log.shown if log.where[i] < first), self._again(first)

    def _again(self, first: int) -> tuple[Message, ...]:
        """Return what an earlier compaction took and this one, beginning before it, brings back."""
        if first >= self.floor:
            return ()
        log, shown = self.log, set(self.log.shown)
        path = (log.entries[i] for i in log.path(log.at) or () if i >= first)
        return tuple(e for e in path if type(e) is Message and e.visible and e.id not in shown)

    def _first_kept(self, line: int, record: dict[str, Any]) -> int | None:
        """Return the index of the first entry kept; None if the record names none that exists."""
        wanted = record.get("firstKeptEntryId")
        if wanted is not None and wanted == record.get("id"):
            return None  # its own id: nothing was kept
        if type(wanted) is str and wanted in self.places:
            at = self.places[wanted]
            return at if at >= 0 and self.log.entries[at].id == wanted else at + 1
        index = record.get("firstKeptEntryIndex")
        if type(index) is int and type(wanted) is not str:
            return self._at_line(index)
        if wanted or index is not None:
            self.faults.append(
                Fault(line, "expected the first kept entry to exist; nothing was kept")
            )
        return None

    def _at_line(self, index: int) -> int:
        """Return the index of the first entry written at a line (counted from 0) or after it."""
        i = bisect_left(self.lines, (index, -1))
        if i == len(self.lines):
            return len(self.log.entries)
        at = self.lines[i][1]
        before = self.lines[i - 1][1] if i else -1
        return at if at > before else at + 1

    def session(self, format_: str) -> Session:
        """Return what was read."""
        header, log = self.header, self.log
        version = header.get("version")
        models = (e.model for e in reversed(log.entries) if type(e) is Message and e.model)
        provider = {
            k: header[k]
            for k in ("branchedFrom", "lastCompactionId", "gitCommit")
            if str_or_none(header.get(k))
        }
        return log.session(
            id=str_or_none(header.get("id")) or self.name,
            format=format_,
            product="ai" if version == 1 and self.tree else "pi",
            version=str(version) if type(version) is int else "1" if header else None,
            cwd=str_or_none(header.get("cwd")),
            title=self.title,
            started=parse_timestamp(header.get("timestamp")),
            model=next(models, None) or self.model or str_or_none(header.get("modelId")),
            parent=str_or_none(header.get("parentSession")),
            skipped=dict(self.skipped),
            faults=tuple(sorted(self.faults, key=lambda f: f.line)),
            details=provider | ({"headless": True} if self.headless else {}),
        )


_HOLDS = {
    "compactions",
    "usages",
    "times",
    "models of calls",
    "stop reasons",
    "error texts",
    "error marks",
    "thoughts",
    "images",
    "entries of other branches",
    "latencies",
}


def encode_session(session: Session) -> tuple[Iterator[bytes], Counter[str]]:
    """Return the lines of a file, and what it cannot hold."""
    lost = count_losses(session, _HOLDS)
    hours = sum(1 for e in session.log if e.usage is not None and e.usage.cache_write_1h_tokens)
    lost["lives of cache writes (one hour)"] += hours
    return _lines(session), lost


def _lines(session: Session) -> Iterator[bytes]:
    yield encode_line(encode_header(session))
    tree = EntryTree(session)
    told: dict[int, str | None] = {-1: None}
    for i, entry in enumerate(session.log):
        before = told[tree.before(i)]
        if isinstance(entry, Edit):
            line = encode_compaction(entry, tree.first_kept(i, entry))
        else:
            said = encode_message(entry)
            line = None if said is None else {"type": "message", "message": said}
        if line is None:
            told[i] = before  # Pi has nothing like it: what follows hangs on what came before
            continue
        told[i] = tree.id(i)
        yield encode_entry(line, tree.id(i), before, format_timestamp(entry.time))
