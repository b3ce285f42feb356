"""Programs of others, run beside the presets: jobs in, answers out, and what of it agreed."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats import read_all
from ctxkit.presets import preset_differences
from ctxkit.session import Attachment, Message, SizeOnly, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session import Session

HERE = Path(__file__).parent
LEAST = 0.99
"""Share of the decisions that must be equal, or different by a cause that the preset names."""
TABLE: list[dict[str, Any]] = []
"""What the tests of this run found, a row each."""


def packages() -> Path | None:
    """The folder into which the programs were installed, or None."""
    named = os.environ.get("CTXKIT_ENGINES")
    found = Path(named).resolve() / "node_modules" if named else None
    return found if found is not None and found.is_dir() else None


def version(package: str) -> str:
    """The version of an installed package, and its name where it was installed under another one."""
    told = json.loads((packages() / package / "package.json").read_text(encoding="utf-8"))
    return f"{told['name']} {told['version']}"


def ask(program: str, *arguments: str, jobs: Iterable[Any]) -> list[Any]:
    """What a program answers, a line for each job."""
    node = os.environ.get("CTXKIT_NODE", "node")
    done = subprocess.run(
        [node, str(HERE / "programs" / program), *arguments],
        input="\n".join(map(json.dumps, jobs)),
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


class Tally:
    """Decisions of a program beside those of its preset."""

    def __init__(self, system: str, program: str, what: str) -> None:
        self.system, self.program, self.what = system, program, what
        self.equal = 0
        self.named: Counter[str] = Counter()
        self.unnamed: list[Any] = []
        self._topics = {d.topic for d in preset_differences(system)}

    def add(self, same: bool, cause: str = "", example: Any = None) -> None:
        """Count a decision; a cause is a topic of the preset's differences."""
        assert not cause or cause in self._topics, cause
        if same:
            self.equal += 1
        elif cause:
            self.named[cause] += 1
        else:
            self.unnamed.append(example)

    def done(self, least: int) -> None:
        """Write the row down, and hold it to the share that must agree."""
        n = self.equal + self.named.total() + len(self.unnamed)
        row = {"system": self.system, "program": self.program, "what": self.what, "decisions": n}
        TABLE.append(
            row | {"equal": self.equal, "named": dict(self.named), "unnamed": len(self.unnamed)}
        )
        assert n >= least, f"{n} decisions of {self.program}: too few to say anything"
        agreed = self.equal + self.named.total()
        assert agreed >= LEAST * n, f"{self.program}: {agreed} of {n}: {self.unnamed[:6]}"


def sessions(
    real: Path, least: int, most: int, *, size: int = 3_200_000
) -> Iterator[tuple[Path, Session]]:
    """The real sessions with so many calls, the first of each file."""
    for path in sorted(real.rglob("*")):
        if path.suffix in (".json", ".jsonl", ".traj") and path.stat().st_size < size:
            try:
                found = read_all(path, progress=False)
            except Exception:  # a manifest or the like: no session
                continue
            if found and least <= len(found[0].calls) <= most:
                yield path, with_objects(found[0])


def with_objects(session: Session) -> Session:
    """The session with an object where a call's arguments are text: these programs know no other."""

    def part_(p: Any) -> Any:
        is_text = isinstance(p, ToolCall) and p.raw is not None
        return replace(p, arguments={"input": p.raw}, raw=None) if is_text else p

    log = (
        replace(e, parts=tuple(map(part_, e.parts))) if isinstance(e, Message) else e
        for e in session.log
    )
    return replace(session, log=tuple(log))


def part(p: Any) -> dict[str, Any] | None:
    """A part as Pi and OpenClaw hold it."""
    if isinstance(p, Text):
        return {"type": "text", "text": p.text}
    if isinstance(p, Thinking):
        return {"type": "thinking", "thinking": p.text}
    if isinstance(p, ToolCall):
        return {"type": "toolCall", "id": p.id, "name": p.name, "arguments": p.arguments}
    if isinstance(p, SizeOnly) and p.kind != "image":  # only its size is known
        return {
            "type": "text",
            "text": "x" * (4 * p.tokens if p.tokens is not None else p.chars or 0),
        }
    return (
        {"type": "image", "data": "", "mimeType": "image/png"}
        if isinstance(p, Attachment)
        else None
    )


def as_pi(message: Message) -> dict[str, Any]:
    """A message as Pi and OpenClaw hold it."""
    role = {"tool": "toolResult", "summary": "user"}.get(message.role, message.role)
    out: dict[str, Any] = {
        "role": role,
        "content": [x for x in map(part, message.parts) if x],
        "timestamp": 0,
    }
    if role == "toolResult":
        out |= {
            "toolCallId": message.call_id,
            "toolName": message.tool,
            "isError": message.is_error,
        }
    if role == "assistant":
        out["stopReason"] = "error" if message.is_error else "stop"
    return out
