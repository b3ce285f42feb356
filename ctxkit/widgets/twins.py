"""What widgets show where there are none: the same as text, and as HTML without a kernel."""

from __future__ import annotations

from typing import Any


class Twins:
    """Stands before the class of a widget, whose front ends without widgets get its twins."""

    def to_text(self) -> str:
        """Return what is shown as text."""
        raise NotImplementedError

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        widget: Any = super()
        found = widget._repr_mimebundle_(**kwargs)
        twins = {"text/plain": self.to_text(), "text/html": self.to_html()}
        if isinstance(found, tuple):  # with metadata, which Colab needs
            return {**found[0], **twins}, found[1]
        return {**(found or {}), **twins}
