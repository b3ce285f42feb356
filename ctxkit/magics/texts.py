"""What a magic says in words: a text for terminals and its twin in HTML."""

from __future__ import annotations

from dataclasses import dataclass

from ctxkit.display.markup import escape, plain

_STYLE = "white-space:pre-wrap;margin:0;color:var(--jp-content-font-color1,inherit)"


@dataclass(frozen=True, repr=False)
class Page:
    """A text that is shown as it stands, in a fixed pitch."""

    text: str

    def __repr__(self) -> str:
        return plain(self.text)

    def _repr_html_(self) -> str:
        return f'<pre style="{_STYLE}">{escape(self.text)}</pre>'
