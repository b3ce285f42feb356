"""Tab completion of the magics' subcommands, options and values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher

from ctxkit.magics.line_parser import get_options, get_positionals, split_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from IPython.core.completer import CompletionContext

_MAX = 200
# Maybe an assignment, then one or two `%`, the magic's name, and the words behind it.
_LINE = re.compile(r"^\s*(?:[\w.\[\]'\", ]+=\s*)?%{1,2}(\w+)[ \t]+(.*)$")


def make_matcher(
    magics: Mapping[str, Mapping[str, type]],
    sources: Mapping[str, Callable[[], Iterable[str]]],
    default: str,
) -> Any:
    """Return an IPython matcher for some magics.

    Args:
        magics: for each magic the shapes of its lines, by its subcommands; `""`: it has none.
        sources: where the words of a kind (`session`, ...) come from; `path` is known here.
        default: the subcommand of a line that names none.
    """

    @context_matcher()  # type: ignore[untyped-decorator]
    def ctxkit_matcher(context: CompletionContext) -> dict[str, Any]:
        line = context.text_until_cursor.rsplit("\n", 1)[-1]
        match = _LINE.match(line)
        if match is None or match[1] not in magics:
            return {"completions": []}
        fragment, completions = complete_line(match[2], magics[match[1]], sources, default)
        return {
            "completions": [
                SimpleCompletion(text=text, type="magic") for text in completions[:_MAX]
            ],
            "suppress": True,
            "ordered": True,
            "matched_fragment": fragment,
        }

    return ctxkit_matcher


# The words before the cursor decide. Without any: subcommands, and options of the default. Behind
# an option with a value: its values. Where the fragment begins with `-`: options that are not there
# yet. Else: values of the next word, whose number is that of the words before without options and
# their values.
def complete_line(
    line: str,
    shapes: Mapping[str, type],
    sources: Mapping[str, Callable[[], Iterable[str]]],
    default: str,
) -> tuple[str, list[str]]:
    """Return the word that is being written, and what it could become."""
    if default not in shapes:  # another magic's, or one without subcommands
        default = next(iter(shapes))
    seen = list(split_tokens(line))
    fragment = line[seen.pop().start :] if seen and not line.endswith((" ", "\t")) else ""
    done = [t.text for t in seen]
    if not done:
        words = [*filter(None, shapes), *get_options(shapes[default])]
        return fragment, [w for w in words if w.startswith(fragment)]
    shape = shapes[done[0] if done[0] in shapes else default]
    before = done[1:] if done[0] in shapes else done
    options = get_options(shape)
    if before and before[-1] in options and options[before[-1]].type != "bool":
        return fragment, _complete_values(
            options[before[-1]].metadata["completes"], fragment, sources
        )
    if fragment.startswith("-"):
        return fragment, [
            o for o in (*options, "--help") if o.startswith(fragment) and o not in before
        ]
    word_count = sum(not w.startswith("-") for w in before) - sum(
        w in options and options[w].type != "bool" for w in before
    )
    places = get_positionals(shape)
    kinds = places[word_count].metadata["completes"] if word_count < len(places) else ""
    values = _complete_values(kinds, fragment, sources)
    return fragment, values if fragment else [*values, *(o for o in options if o not in before)]


def _complete_values(
    kinds: str, fragment: str, sources: Mapping[str, Callable[[], Iterable[str]]]
) -> list[str]:
    out: list[str] = []
    for kind in kinds.split():
        out += (
            _complete_paths(fragment)
            if kind == "path"
            else [w for w in sources[kind]() if w.startswith(fragment)]
        )
    return out


def _complete_paths(fragment: str) -> list[str]:
    """Paths as the user would write them on; what begins with a dot only when it was asked for."""
    head, slash, tail = fragment.strip("\"'").rpartition("/")
    folder = Path(head + slash).expanduser() if slash else Path()
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    names = [p.name + ("/" if p.is_dir() else "") for p in entries if p.name.startswith(tail)]
    names = [n for n in names if tail.startswith(".") or not n.startswith(".")]
    return [f'"{head}{slash}{n}"' if " " in n else f"{head}{slash}{n}" for n in names]
