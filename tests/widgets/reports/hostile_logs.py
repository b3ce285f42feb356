"""A session whose every text tries to leave its place: scripts, links, attributes, terminal escapes, bidi controls."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec

from ctxkit.session import (
    Edit,
    Fault,
    Message,
    Session,
    Text,
    Thinking,
    ToolCall,
    ToolSchema,
    Usage,
)

EVIL = (
    "</script><script>window.evil=1</script></pre></style><img src=x onerror='window.evil=2'>"
    '" onmouseover="window.evil=3" <a href=\'javascript:window.evil=4\'>x</a> [y](javascript:window.evil=5) '
    "$\\href{javascript:window.evil=6}{z}$ %{x} &lt;b&gt; <!-- \u2028 \x1b[31mred\x1b]8;;http://evil.example\x07link\x1b[0m \u202egnp.exe\u2066 \x00\ud800"
)


SECRET = "ghp_" + "aB3dE6gH9j" * 3 + "kLmN1p"
"""A key of a published form."""
CONTROLS = "\x1b\x00\x07\u202e\u2066\ud800"
"""Characters that no page and no terminal may be given."""
LARGEST_OUTPUT = 1_000_000
"""Characters of one output that shows a session: a page of tables, not the log."""


def hostile(n: int = 4, text: str = EVIL) -> Session:
    """A session with calls, tools, a compaction, faults and skipped records, all of them called `text`."""
    log: list[Message | Edit] = [
        Message(role="system", id="s", parts=(Text(f"# {text}\n<{text}>\n{text}"),))
    ]
    for i in range(n):
        call = ToolCall(id=f"c{i}", name=text, arguments={text: text})
        usage = Usage(input_tokens=900 * (i + 1), output_tokens=50)
        log += [
            Message(role="user", id=f"u{i}", parts=(Text(text),), kind=text),
            Message(
                role="assistant", id=f"a{i}", parts=(Thinking(text), Text(text), call), usage=usage, model=text,
                agent=text, stop=text, time=1_700_000_000.0 + i,
            ),
            Message(role="tool", id=f"r{i}", parts=(Text(text),), tool=text, call_id=f"c{i}", is_error=True, error=text),
        ]  # fmt: skip
    summary = Message(role="summary", id="m", parts=(Text(text),))
    edit = Edit(
        kind="summarised", id="e", targets=("u0", "a0", "r0"), inserted=(summary,), reason=text, trigger=text,
        method=text, model=text,
    )  # fmt: skip
    last = Message(
        role="assistant", id="z", parts=(Text(text),), model=text, usage=Usage(input_tokens=700)
    )
    return Session(
        id=text, format=text, title=text, product=text, version=text, model=text, agent=text, cwd=text, path_=text,
        log=(*log, edit, last), skipped={text: 3}, faults=(Fault(1, text),),
        tools=(ToolSchema(name=text, description=text, parameters={text: text}),),
    )  # fmt: skip


def rename_all(session: Session, text: str = EVIL) -> Session:
    """Return a session whose names and words all contain `text`; its model, times and usage are those of the session."""
    log = tuple(_rename(entry, text) for entry in session.log)
    return msgspec.structs.replace(
        session, log=log, id=text, title=text, agent=text, cwd=text, path_=None
    )


def _rename(entry: Message | Edit, text: str) -> Message | Edit:
    if isinstance(entry, Edit):
        inserted = tuple(_rename(m, text) for m in entry.inserted)
        return msgspec.structs.replace(
            entry, inserted=inserted, reason=text, trigger=text, method=text
        )
    parts = tuple(
        Text(f"{p.text} {text}")
        if isinstance(p, Text)
        else ToolCall(id=p.id, name=f"{p.name} {text}", arguments={**p.arguments, text: text})
        if isinstance(p, ToolCall)
        else p
        for p in entry.parts
    )
    tool = f"{entry.tool} {text}" if entry.tool else None
    return msgspec.structs.replace(entry, parts=parts, tool=tool)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.wrong: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag in ("img", "a", "iframe", "object", "embed", "link", "base", "form"):
            self.wrong.append(f"<{tag}>")
        self.wrong += [
            f"{k}={v}"
            for k, v in attrs
            if k.startswith("on") or "javascript:" in (v or "")[:20].lower()
        ]


def intruders(html: str, *, scripts: int = 0) -> list[str]:
    """Tags and attributes that no text of a log may bring into HTML, and characters that no page may hold."""
    page = _Page()
    page.feed(html)
    page.close()
    out = page.wrong + ([f"{page.scripts} scripts"] if page.scripts != scripts else [])
    return out + [repr(c) for c in CONTROLS if c in html]


def list_leaks(text: str, *, html: bool = False) -> list[str]:
    """Return what one output holds that no text of a log may bring there: tags, controls, keys, or too much."""
    out = intruders(text) if html else []
    out += [repr(c) for c in CONTROLS if not html and c in text]
    out += ["a key"] * (SECRET in text) + ["too long"] * (len(text) > LARGEST_OUTPUT)
    return out
