"""Compactor that runs an external command: JSON messages on stdin, the compacted ones on stdout."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any, BinaryIO

from ctxkit._internal.formatting import sanitize_line
from ctxkit.agent.child_processes import ProcessTree, find_failure_line
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable

    ChatMessages = list[dict[str, Any]]
    Compactor = Callable[[ChatMessages], ChatMessages]

MAX_OUTPUT_BYTES = 64 << 20
"""Largest output of a program in bytes, on stdout and on stderr each."""
ROLES = ("system", "developer", "user", "assistant", "tool")
_POLL_SECONDS = 0.02
_MAX_STDERR_BYTES = 64 << 10
"""Bytes at the end of stderr that are searched for the line to quote."""


def command(words: str, seconds: float = 120.0) -> Compactor:
    """Return a compactor that runs a program without a shell.

    The program reads a list of Chat Completions messages as JSON from stdin and prints a list of
    messages, or an object with the key `messages`.

    Args:
        words: the command line; it is split as a shell would split it.
        seconds: time after which the program and its child processes are killed.

    Returns:
        A function from a list of messages to the compacted list, for `gate_compactor`.

    Raises:
        BadArguments: the words are no command. The compactor raises it where the program cannot be
            started, takes too long, fails, or prints no list of messages.

    Example:
        >>> from ctxkit.experiments.gates.compactor_command import command
        >>> command("cat")([{"role": "user", "content": "Hello"}])
        [{'role': 'user', 'content': 'Hello'}]
    """
    try:
        arguments = shlex.split(words)
    except ValueError as error:
        raise BadArguments(f"{words!r} is no command: {error}.") from None
    if not arguments:
        raise BadArguments("The compactor is a command, not an empty text.")

    def compact(messages: ChatMessages) -> ChatMessages:
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
            with tempfile.TemporaryFile() as stderr:
                stdin.write(json.dumps(messages).encode())
                stdin.seek(0)
                _run_program(arguments, (stdin, stdout, stderr), seconds)
            stdout.seek(0)
            return parse_messages(stdout.read())

    return compact


def _run_program(
    arguments: list[str], files: tuple[BinaryIO, BinaryIO, BinaryIO], seconds: float
) -> None:
    stdin, stdout, stderr = files
    name = sanitize_line(arguments[0], 60)
    try:
        tree = ProcessTree(arguments)
        with tree.starting():
            process = subprocess.Popen(  # noqa: S603  the user's own command, without a shell
                tree.arguments, stdin=stdin, stdout=stdout, stderr=stderr, **tree.options
            )
            tree.set_pid(process.pid)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadArguments(f"The compactor {name!r} cannot be started: {why}.") from None
    # Files instead of pipes: a program that does not read its input cannot block, and the size of
    # its output is known while it runs.
    deadline = time.monotonic() + seconds
    try:
        while True:
            code = process.poll()  # before the size check, so that the last output is counted
            if max(os.fstat(f.fileno()).st_size for f in (stdout, stderr)) > MAX_OUTPUT_BYTES:
                raise BadArguments(
                    f"The compactor {name!r} printed more than {MAX_OUTPUT_BYTES >> 20} MB."
                )
            if code is not None:
                break
            if time.monotonic() > deadline:
                raise BadArguments(
                    f"The compactor {name!r} did not answer within {seconds:g} s: --timeout gives "
                    "it longer."
                )
            time.sleep(_POLL_SECONDS)
    finally:
        tree.end_and_wait(process)
    if code:
        raise BadArguments(
            f"The compactor {name!r} failed with {_describe_exit(code)}.{_quote_stderr(stderr)}"
        )


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _quote_stderr(stderr: BinaryIO) -> str:
    """Return a sentence that quotes the last line of stderr; empty where there is none."""
    stderr.seek(max(stderr.seek(0, os.SEEK_END) - _MAX_STDERR_BYTES, 0))
    quoted = find_failure_line(stderr.read())
    return f" It said: {quoted}" if quoted else ""


def parse_messages(data: bytes) -> ChatMessages:
    """Parse the output of a compactor as messages.

    Raises:
        BadArguments: the output is no list of messages; the sentence says what it is.
    """
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        begins = sanitize_line(data[:4096].decode("utf-8", "replace"), 60)
        problem = f"it begins {begins!r}" if begins else "it is empty"
        raise BadArguments(f"The compactor's answer is no JSON: {problem}.") from None
    return validate_compactor_answer(
        answer["messages"] if isinstance(answer, dict) and "messages" in answer else answer
    )


def validate_compactor_answer(answer: Any) -> ChatMessages:
    """Return an answer that is a list of messages.

    Args:
        answer: what a compactor returned.

    Returns:
        The answer as it is; each message has a known role and a content.

    Raises:
        BadArguments: it is not one; the sentence names the first fault.
    """
    if not isinstance(answer, list) or not answer:
        what = "an empty list" if answer == [] else f"a {type(answer).__name__}"
        raise BadArguments(f"The compactor's answer is {what}: expected a list of messages.")
    for i, message in enumerate(answer):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise BadArguments(
                f"Message {i} of the compactor's answer has no role: expected an object with "
                f"`role` ({', '.join(ROLES)}) and `content`."
            )
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise BadArguments(
                f"The content of message {i} of the compactor's answer is no text and no list."
            )
    return answer
