"""OpenAI's Chat Completions: a list of messages, a request, a completion, or lines of them;
LiteLLM's logs too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import ReadError
from ctxkit.messages import Fault
from ctxkit.readers.damaged import noting
from ctxkit.readers.fields import items, mapping, real, time, word
from ctxkit.readers.talks import Talk, is_message, is_talk
from ctxkit.readers.usages import to_stop, to_usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "openai"
ALIASES = ("openai-messages", "openai-chat", "chat-completions", "litellm")
CAN = (
    "text, system prompt, tools, calls and results; usage where completions are there (cache reads)"
)
CANNOT = "times of messages, compactions"
BLIND = ("compactions", "tool errors")


def sniff(source: Source) -> bool:
    """Say whether there are messages of OpenAI's roles (alone or in a request) or a completion."""
    document = source.document
    if type(document) is list:
        return is_talk(document) or (bool(document) and all(_is_record(d) for d in document[:3]))
    if not source.head:
        return False
    first = source.head[0]
    return is_message(first) or _is_record(first)


def _is_record(record: Any) -> bool:
    request, response = _halves(mapping(record))
    if is_talk(request.get("messages")):
        return True
    choices = items(response.get("choices"))
    return bool(choices) and is_message(mapping(choices[0]).get("message"))


def _halves(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return request and response: beside each other, in one object, or in a batch's `body`."""
    answer = mapping(record.get("response"))
    request = mapping(record.get("request")) or mapping(record.get("body")) or record
    return request, mapping(answer.get("body")) or answer or record


def read(source: Source) -> list[Session]:
    """Read a conversation, or several where lines hold ones that have nothing in common."""
    document = source.document
    name = source.path.stem
    if type(document) is list:
        records = (
            [(0, r) for r in document] if not is_talk(document) else [(0, {"messages": document})]
        )
    else:
        records = source.records
        if records and is_message(records[0][1]):
            return [_lines(source, name)]
    talks = _talks(records, list(source.faults) if type(document) is not list else [])
    if not talks:
        raise ReadError(
            "expected messages with a role, or requests with messages; found none.", source.path
        )
    return [t.session(name if len(talks) == 1 else f"{name}/{i}") for i, t in enumerate(talks)]


def conversation(calls: Iterable[dict[str, Any]], name: str) -> Session:
    """Read requests and their completions that are known to be one conversation, however shortened.

    Raises:
        ReadError: none of them is one.
    """
    talks = _talks(list(enumerate(calls)), [], together=True)
    if not talks:
        raise ReadError("expected a request with messages, or a completion; found none.", name)
    return talks[0].session(name)


def _lines(source: Source, name: str) -> Session:
    talk = Talk(NAME)
    talk.faults += source.faults
    for line, record in source.records:
        made = talk.make(record, time=time(record.get("timestamp") or record.get("created_at")))
        if not made and not is_message(record):
            talk.faults.append(Fault(line, "expected a message with a role and content"))
        talk.add(made)
    return talk.session(name)


def _talks(
    records: list[tuple[int, Any]], faults: list[Fault], *, together: bool = False
) -> list[Talk]:
    talks: list[Talk] = []
    first: list[Any] = []
    for line, record in records:
        with noting(faults, line):
            fields = mapping(record)
            request, response = _halves(fields)
            raws = items(request.get("messages"))
            if not raws and not _is_record(record):
                faults.append(
                    Fault(line, "expected a request with messages, or a completion with choices")
                )
                continue
            opening = [r for r in raws[:3] if mapping(r).get("role") != "assistant"][:2]
            n = min(len(opening), len(first))
            if not talks or (not together and (not raws or opening[:n] != first[:n])):
                talks.append(Talk(NAME))
                first = []
            first = max(first, opening, key=len)
            talks[-1].settings(request)
            if raws:
                talks[-1].request(raws)
            _reply(talks[-1], fields, response)
    if talks:
        talks[0].faults += faults
    return talks


def _reply(talk: Talk, record: dict[str, Any], response: dict[str, Any]) -> None:
    """Take the completion of a request, where there is one."""
    choices = items(response.get("choices"))
    if not choices:
        return
    choice = mapping(choices[0])
    began = time(record.get("startTime"))
    ended = time(record.get("endTime")) or time(response.get("created"))
    usage = to_usage(response.get("usage"), real(record.get("response_cost", record.get("cost"))))
    talk.reply(
        choice.get("message"),
        usage=usage,
        model=word(response.get("model")) or talk.model,
        stop=to_stop(choice.get("finish_reason")),
        time=ended,
        latency=None if began is None or ended is None or ended < began else ended - began,
    )
