"""Progress bars; in a notebook they leave no widget behind, which no saved notebook could show."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["make_progress_bar"]


def make_progress_bar(*items: Any, delay: float = 1, **options: Any) -> Any:
    """Return a bar of tqdm for the terminal or the notebook.

    Args:
        items: values to iterate over; none if the caller updates the bar itself.
        delay: seconds before it appears.
        options: those of `tqdm.tqdm`.
    """
    from tqdm import auto

    bar: Any = auto.tqdm
    if any(each.__module__ == "tqdm.notebook" for each in bar.__mro__):
        bar, delay = _make_notebook_class(), max(delay, 0.001)
    return bar(*items, delay=delay, **options)


# The output of tqdm's own bar is a widget. A notebook that is saved and opened again has no model
# for it and shows "Loading widget...". This bar therefore replaces its output when it ends: by
# nothing where the work was done, by the words of the bar where it was not.
@cache
def _make_notebook_class() -> Any:
    """Return the class of bars for notebooks; it is made when one is needed, as tqdm is large."""
    from tqdm import auto, notebook

    show: Any = notebook.display  # type: ignore[attr-defined]  # IPython's
    base: Any = auto.tqdm

    class NotebookBar(base):  # type: ignore[misc]
        output: Any = None
        """The handle of its output, while the bar is in it."""
        displayed: bool = False

        def display(self, *words: Any, check_delay: bool = True, **options: Any) -> None:
            super().display(*words, check_delay=False, **options)  # else tqdm displays it itself
            if check_delay and not self.displayed:
                self.output, self.displayed = show(self.container, display_id=True), True

        def close(self) -> None:
            super().close()
            if self.output is not None:
                is_done = not self.total or self.n >= self.total
                last = {"text/html": ""} if is_done else {"text/plain": str(self)}
                self.output.update(last, raw=True)
                self.output = None

    return NotebookBar
