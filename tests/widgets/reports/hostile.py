"""A session whose every text tries to leave its place: scripts, links, attributes, terminal escapes, bidi controls."""

from __future__ import annotations

from html.parser import HTMLParser

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


def hostile(n: int = 4) -> Session:
    """A session with calls, tools, a compaction, faults and skipped records, all of them called `EVIL`."""
    log: list[Message | Edit] = [
        Message(role="system", id="s", parts=(Text(f"# {EVIL}\n<{EVIL}>\n{EVIL}"),))
    ]
    for i in range(n):
        call = ToolCall(id=f"c{i}", name=EVIL, arguments={EVIL: EVIL})
        usage = Usage(input_tokens=900 * (i + 1), output_tokens=50)
        log += [
            Message(role="user", id=f"u{i}", parts=(Text(EVIL),), kind=EVIL),
            Message(
                role="assistant", id=f"a{i}", parts=(Thinking(EVIL), Text(EVIL), call), usage=usage, model=EVIL,
                agent=EVIL, stop=EVIL, time=1_700_000_000.0 + i,
            ),
            Message(role="tool", id=f"r{i}", parts=(Text(EVIL),), tool=EVIL, call_id=f"c{i}", is_error=True, error=EVIL),
        ]  # fmt: skip
    summary = Message(role="summary", id="m", parts=(Text(EVIL),))
    edit = Edit(
        kind="summarised", id="e", targets=("u0", "a0", "r0"), inserted=(summary,), reason=EVIL, trigger=EVIL,
        method=EVIL, model=EVIL,
    )  # fmt: skip
    last = Message(
        role="assistant", id="z", parts=(Text(EVIL),), model=EVIL, usage=Usage(input_tokens=700)
    )
    return Session(
        id=EVIL, format=EVIL, title=EVIL, product=EVIL, version=EVIL, model=EVIL, agent=EVIL, cwd=EVIL, path_=EVIL,
        log=(*log, edit, last), skipped={EVIL: 3}, faults=(Fault(1, EVIL),),
        tools=(ToolSchema(name=EVIL, description=EVIL, parameters={EVIL: EVIL}),),
    )  # fmt: skip


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
    return out + [repr(c) for c in "\x1b\x00\x07\u202e\u2066\ud800" if c in html]
