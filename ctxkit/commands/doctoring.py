"""`ctxkit doctor`: in a sentence each, what is ready on this machine."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from ctxkit.commands import WORSE
from ctxkit.commands.options import answer
from ctxkit.commands.printing import Out, TableHead, show
from ctxkit.display.markup import line

if TYPE_CHECKING:
    from collections.abc import Callable


State = Literal["ready", "optional", "missing"]
"""Here; not here, and only some need it; not here, and everybody needs it (exit code 1)."""
_SIGNS: dict[State, str] = {"ready": "ok", "optional": "-", "missing": "no"}
HEADS = (TableHead("about", "about"), TableHead("state", "state"), TableHead("told", "what"))
_WORDS = 80
"""Characters of what a damaged package says."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    about: str
    state: State
    told: str


@click.command()
@answer
@click.pass_context
def doctor_(context: click.Context, out: Out) -> None:
    """Say whether notebook, widgets, tokenizer, folders and models are ready."""
    found = [_looked(check) for check in CHECKS]
    if out.json or out.html:
        out.table("ctxkit doctor", HEADS, [f._asdict() for f in found])
    else:
        show((), (), [f"{_SIGNS[f.state]:<3} {f.about}: {f.told}" for f in found])
    if any(f.state == "missing" for f in found):
        context.exit(WORSE)


def _looked(check: Callable[[], Finding]) -> Finding:
    """Return what a check finds; what it falls over is missing."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  a damaged package may raise anything
        told = f"{line(str(error), _WORDS)}: install ctxkit again."
        return Finding(check.__name__.strip("_"), "missing", told)


def _missing(*names: str) -> list[str]:
    """Return the packages that cannot be imported; of one that is there but damaged, why."""
    found = []
    for name in names:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001  a damaged package may raise anything
            absent = isinstance(error, ModuleNotFoundError) and error.name == name
            found.append(name if absent else f"{name} (damaged: {line(str(error), _WORDS)})")
    return found


def _kit() -> Finding:
    import ctxkit

    if missing := _missing("msgspec", "numpy", "pandas"):
        return Finding("ctxkit", "missing", f"{', '.join(missing)} missing: install ctxkit again.")
    version = ".".join(map(str, sys.version_info[:3]))
    place = Path(ctxkit.__file__).parent
    return Finding("ctxkit", "ready", f"{ctxkit.__version__} on Python {version}, in {place}.")


def _notebook() -> Finding:
    missing = [] if find_spec("jupyterlab") else ["jupyterlab"]  # its import takes two seconds
    missing += _missing("ipykernel")
    if missing:
        what = ", ".join(missing)
        return Finding("notebook", "optional", f"{what} missing: pip install 'ctxkit[lab]'.")
    return Finding("notebook", "ready", "JupyterLab and its kernel are here: %load_ext ctxkit.")


def _widgets() -> Finding:
    missing = _missing("ipywidgets", "anywidget", "plotly")
    if missing:
        return Finding("widgets", "missing", f"{', '.join(missing)} missing: install ctxkit again.")
    if _missing("jupyterlab_widgets"):
        told = "jupyterlab_widgets missing: pip install 'ctxkit[lab]'; texts are shown instead."
        return Finding("widgets", "optional", told)
    return Finding("widgets", "ready", "explore, tune and watch can be drawn.")


def _tokenizer() -> Finding:
    from ctxkit.tokens import ready

    if ready():
        return Finding("tokenizer", "ready", "exact counts of OpenAI's o200k_base work offline.")
    return Finding("tokenizer", "missing", "no vocabulary: install ctxkit again.")


def _prices() -> Finding:
    from ctxkit.prices import price, table

    if price("claude-sonnet-4-5") is None:
        return Finding("prices", "missing", "no table of prices: install ctxkit again.")
    return Finding("prices", "ready", f"{table()}.")


def _folders() -> Finding:
    from collections import Counter

    from ctxkit.commands.seen import files

    tools = Counter(f.tool for f in files())
    told = ", ".join(f"{name} {n:,}" for name, n in tools.most_common())
    if not told:
        why = "no sessions of known tools in your home: name files or folders yourself."
        return Finding("tools' folders", "optional", why)
    return Finding("tools' folders", "ready", f"files of {told}.")


def _state() -> Finding:
    from ctxkit.store.trust import place

    folder = place()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFile(dir=folder):
            return Finding("state folder", "ready", f"{folder} keeps what was seen.")
    except OSError as error:
        why = f"{folder} cannot be written ({error.strerror}): name another by XDG_STATE_HOME."
        return Finding("state folder", "missing", why)


def _models() -> Finding:
    from ctxkit.models.keys import at_hand

    keys = at_hand()
    local = "local models with xllamacpp" if find_spec("xllamacpp") else ""
    told = ", ".join(filter(None, (*(f"{k} is set" for k in keys), local)))
    if told:
        return Finding("models", "ready", f"{told}.")
    why = "no key is set (OPENAI_API_KEY, ...): replays need none, %%agent needs one."
    return Finding("models", "optional", why)


CHECKS: tuple[Callable[[], Finding], ...] = (
    _kit,
    _notebook,
    _widgets,
    _tokenizer,
    _prices,
    _folders,
    _state,
    _models,
)
