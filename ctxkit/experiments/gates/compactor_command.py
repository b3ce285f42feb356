"""A compactor that is an external command: messages as JSON on stdin, the rest on stdout."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any, BinaryIO

from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit.agent.child_process import quote_output
from ctxkit.agent.process_tree import ProcessTree
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable

    ChatMessages = list[dict[str, Any]]
    Compactor = Callable[[ChatMessages], ChatMessages]

MAX_OUTPUT_BYTES = 64 << 20
"""Bytes that a program may print."""
ROLES = ("system", "developer", "user", "assistant", "tool")
_PAUSE = 0.02
_TAIL = 64 << 10
"""Bytes at the end of a program's errors that are read for the line to quote."""


def command(words: str, seconds: float = 120.0) -> Compactor:
    """Return a compactor that runs a program: no shell, Chat Completions messages as JSON.

    It gets a list of messages on stdin and prints a list of messages (or an object that has one
    as `messages`). It is killed after so many seconds; what it started ends with it.

    Raises:
        BadArguments: the words cannot be a command; of the compactor: it could not be started,
            took too long, failed, or printed no list of messages.
    """
    try:
        arguments = shlex.split(words)
    except ValueError as error:
        raise BadArguments(f"{words!r} is no command: {error}.") from None
    if not arguments:
        raise BadArguments("The compactor is a command, not an empty text.")

    def compact(messages: ChatMessages) -> ChatMessages:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out:
            with tempfile.TemporaryFile() as told:
                given.write(json.dumps(messages).encode())
                given.seek(0)
                _run(arguments, (given, out, told), seconds)
            out.seek(0)
            return parse_messages(out.read())

    return compact


def _run(arguments: list[str], files: tuple[BinaryIO, BinaryIO, BinaryIO], seconds: float) -> None:
    given, out, told = files
    name = sanitize_line(arguments[0], 60)
    try:
        tree = ProcessTree(arguments)
        with tree.starting():
            running = subprocess.Popen(  # noqa: S603  the user's own command, without a shell
                tree.arguments, stdin=given, stdout=out, stderr=told, **tree.options
            )
            tree.begun(running.pid)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadArguments(f"The compactor {name!r} cannot be started: {why}.") from None
    end = time.monotonic() + seconds
    try:
        while True:
            code = running.poll()  # asked first: what it printed until then is looked at
            if max(os.fstat(f.fileno()).st_size for f in (out, told)) > MAX_OUTPUT_BYTES:
                raise BadArguments(
                    f"The compactor {name!r} printed more than {MAX_OUTPUT_BYTES >> 20} MB."
                )
            if code is not None:
                break
            if time.monotonic() > end:
                raise BadArguments(
                    f"The compactor {name!r} did not answer within {seconds:g} s: --timeout gives "
                    "it longer."
                )
            time.sleep(_PAUSE)
    finally:
        tree.end_and_wait(running)
    if code:
        raise BadArguments(
            f"The compactor {name!r} failed with {_exit_text(code)}.{_last_error_line(told)}"
        )


def _exit_text(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _last_error_line(told: BinaryIO) -> str:
    """Return what a program said of its failure, as a sentence."""
    told.seek(max(told.seek(0, os.SEEK_END) - _TAIL, 0))
    quoted = quote_output(told.read())
    return f" It said: {quoted}" if quoted else ""


def parse_messages(data: bytes) -> ChatMessages:
    """Return the messages that a compactor printed.

    Raises:
        BadArguments: it is no list of messages; the sentence says what it is.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        begins = sanitize_line(redact(data[:4096].decode("utf-8", "replace")), 60)
        said = f"it begins {begins!r}" if begins else "it is empty"
        raise BadArguments(f"The compactor's answer is no JSON: {said}.") from None
    return validate_messages(
        found["messages"] if isinstance(found, dict) and "messages" in found else found
    )


def validate_messages(found: Any) -> ChatMessages:
    """Return what a compactor gave back, if it is a list of messages."""
    if not isinstance(found, list) or not found:
        what = "an empty list" if found == [] else f"a {type(found).__name__}"
        raise BadArguments(f"The compactor's answer is {what}: expected a list of messages.")
    for i, message in enumerate(found):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise BadArguments(
                f"Message {i} of the compactor's answer has no role: expected an object with "
                f"`role` ({', '.join(ROLES)}) and `content`."
            )
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise BadArguments(
                f"The content of message {i} of the compactor's answer is no text and no list."
            )
    return found
