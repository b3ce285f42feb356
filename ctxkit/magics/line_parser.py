"""Parser and tab completion of magics' lines: a line becomes a dataclass of words and options.

A field is a `word` (taken in order), an `option` (`--name VALUE`, wherever it stands) or the
`rest`: plain text as it is written. That text is not split into words and joined again, as its
quotes and blanks are the user's: options are cut out of it by their positions.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.completer import SimpleCompletion, context_matcher

from ctxkit._internal.safe_files import expand_home
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from IPython.core.completer import CompletionContext

T = TypeVar("T")
# Quoted parts and plain characters side by side; a quote without its partner is a character.
_TOKEN = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"']|["'])+""")
_WORD = re.compile(r"""(?:--[\w-]+=)?(?:"[^"]*"|'(?:(?!\s--).)*?')(?=\s|$)|\S+""", re.DOTALL)
"""A word of plain text. Quotes are around it, never within (don't), and single ones, which may be
apostrophes (the others' ids), hide no option behind a blank."""
_HELP = ("-h", "--help")


def positional_field(help: str, *, default: Any = MISSING, completes: str = "") -> Any:  # noqa: A002  the word that argparse uses
    """A word of the line, in the order of the fields; optional where it has a default.

    Args:
        help: description for people.
        default: its value where the line ends before it; none: the word is required.
        completes: kind of word, for completion by the Tab key.

    Returns:
        A field of a dataclass.
    """
    return field(default=default, metadata={"help": help, "completes": completes, "place": "word"})


def option_field(
    help: str,  # noqa: A002
    *,
    default: Any = None,
    completes: str = "",
    setting: str | None = None,
    task: str = "",
) -> Any:
    """An option `--name VALUE`; a flag where the field is a `bool`.

    Args:
        help: description for people.
        default: its value where the line does not name it.
        completes: kind of its value, for completion by the Tab key.
        setting: the value of the setting of that name, which holds where no line names the option;
            None: there is no such setting.
        task: the heading of the help under which it stands; empty: none.

    Returns:
        A keyword-only field of a dataclass.
    """
    metadata = {
        "help": help, "completes": completes, "place": "option", "setting": setting, "task": task,
    }  # fmt: skip
    return field(default=default, metadata=metadata, kw_only=True)


def remaining_text_field(help: str) -> Any:  # noqa: A002
    """Plain text, taken as it stands but for options: those count wherever they are in it.

    Args:
        help: description for people.

    Returns:
        A field of a dataclass, the last one in the line.
    """
    return field(default="", metadata={"help": help, "completes": "", "place": "rest"})


@dataclass(frozen=True)
class LineToken:
    """One word of a line with its quotes taken off, and where it began."""

    text: str
    start: int


def split_tokens(line: str) -> Iterator[LineToken]:
    """Yield the words of a line; quotes keep spaces, backslashes are nothing special (paths of
    Windows).

    Args:
        line: line of a magic, without its name.

    Yields:
        Words without their quotes, with the position of the first character.

    Example:
        >>> from ctxkit.magics.line_parser import split_tokens
        >>> [token.text for token in split_tokens('"two words" three')]
        ['two words', 'three']
    """
    for match in _TOKEN.finditer(line):
        yield LineToken(
            re.sub(r"\"([^\"]*)\"|'([^']*)'", lambda m: m[1] or m[2] or "", match[0]), match.start()
        )


def has_help_flag(line: str) -> bool:
    """True where one of the words is `-h` or `--help`.

    Args:
        line: line of a magic, without its name.

    Returns:
        False where `-h` stands inside of quotes with other words.

    Example:
        >>> from ctxkit.magics.line_parser import has_help_flag
        >>> has_help_flag("turns -h")
        True
    """
    return any(t.text in _HELP for t in split_tokens(line))


def strip_semicolon(line: str) -> str:
    """Return the line without the `;` at its end that silences a display.

    Args:
        line: line of a magic, without its comment.

    Returns:
        The line without blanks at its end.

    Example:
        >>> from ctxkit.magics.line_parser import strip_semicolon
        >>> strip_semicolon("turns ; ")
        'turns'
    """
    return line.rstrip().removesuffix(";").rstrip()


def strip_comment(line: str) -> str:
    """Return the line without a comment (`# ...`) at its end; a `#` in quotes or within a word is
    none.

    Args:
        line: line of a magic, without its name.

    Returns:
        The line without blanks before the comment.

    Example:
        >>> from ctxkit.magics.line_parser import strip_comment
        >>> strip_comment("turns --follow  # the last one")
        'turns --follow'
    """
    at = next((t.start for t in split_tokens(line) if line[t.start] == "#"), None)
    return line if at is None else line[:at].rstrip()


# One pass over the tokens. Options may be anywhere before the rest. The first other word begins
# the rest, where the shape has one: it is cut out of the line by position, so its quotes and blanks
# remain. Without a rest, words fill the fields in order.
def parse_line(arguments_type: type[T], line: str, magic: str) -> T:
    """Return a line as a value of a dataclass made of `word`, `option` and `rest`.

    Args:
        arguments_type: the dataclass.
        line: the line without the magic's name.
        magic: the magic as sentences name it.

    Returns:
        An instance of the dataclass; an option that the line does not name has its default.

    Raises:
        BadArguments: an option that does not exist, lacks its value or is no number; a word too
            many or too few.
    """
    options, words = get_option_fields(arguments_type), get_positional_fields(arguments_type)
    rest_field = next((f for f in fields(arguments_type) if f.metadata["place"] == "rest"), None)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    tokens = list(split_tokens(line))
    while tokens:
        token = tokens.pop(0)
        if line.startswith("--", token.start) and len(token.text) > 2:
            name, value = _parse_option(token, tokens, options, magic)
            values[name] = value
        elif rest_field is not None:
            values[rest_field.name] = _extract_options(line[token.start :], options, magic, values)
            break
        elif words:
            field_of_word = words.pop(0)
            values[field_of_word.name] = _convert_value(field_of_word, token.text, magic)
        else:
            raise BadArguments(
                f"`{magic}` takes no further word; {token.text!r} is one too many. See `{magic}"
                " -h`."
            )
    missing = [f for f in words if f.default is MISSING]
    if missing:
        raise BadArguments(
            f"`{magic}` needs {missing[0].name.upper()}: {missing[0].metadata['help']}."
        )
    return arguments_type(**values)


def _parse_option(
    token: LineToken, stream: list[LineToken], options: dict[str, Field[Any]], magic: str
) -> tuple[str, Any]:
    """Return the field and the value of an option; its value may be the next word, which is then
    taken.
    """
    name, equals, value = token.text.partition("=")
    if name not in options:
        hint = did_you_mean(name, options)
        raise BadArguments(f"`{magic}` has no option {name}.{hint} See `{magic} -h`.")
    field_of_option = options[name]
    if field_of_option.type == "bool":
        if equals:
            raise BadArguments(f"`{magic} {name}` takes no value: write it alone, or leave it out.")
        return field_of_option.name, True
    if not equals and not stream:
        raise BadArguments(f"`{magic} {name}` needs a value: {field_of_option.metadata['help']}.")
    return field_of_option.name, _convert_value(
        field_of_option, value if equals else stream.pop(0).text, magic
    )


# Text between options is copied by position: `at` is where the last option ended, and `pieces`
# holds the texts before each option. `_parse_option` takes a value out of `next_word`, a list
# of at most one token, whose length afterwards tells whether it was used.
def _extract_options(
    text: str, options: dict[str, Field[Any]], magic: str, values: dict[str, Any]
) -> str:
    """Return a text without the options in it, which go to `values`.

    An option after the first word must count: `%compact keep the ids --dry-run` once compacted for
    good. In quotes, and behind a `--` that is alone, nothing is an option.
    """
    pieces, at = [], 0
    words = [LineToken(m[0], m.start()) for m in _WORD.finditer(text)]
    while words:
        word = words.pop(0)
        if word.text == "--":
            pieces.append(text[at : word.start].strip())
            at = word.start + 2
            break
        if not word.text.startswith("--"):
            continue
        pieces.append(text[at : word.start].strip())
        next_word = [LineToken(_strip_quotes(w.text), w.start) for w in words[:1]]
        words_before = len(next_word)
        name, option_value = _parse_option(
            LineToken(_strip_quotes(word.text), word.start), next_word, options, magic
        )
        values[name] = option_value
        del words[: words_before - len(next_word)]
        at = words[0].start if words else len(text)
    return " ".join(t for t in (*pieces, text[at:].strip()) if t) if pieces else text


def _strip_quotes(word: str) -> str:
    """Return a word of a text without the quotes around it, or around the value after `=`."""
    name, equals, value = word.partition("=")
    if equals and name.startswith("--"):
        return f"{name}={_strip_quotes(value)}"
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"
    return word[1:-1] if quoted else word


def get_option_fields(arguments_type: type) -> dict[str, Field[Any]]:
    """The options of a dataclass as they are typed: `--name` to its field."""
    return {
        "--" + f.name.rstrip("_").replace("_", "-"): f
        for f in fields(arguments_type)
        if f.metadata["place"] == "option"
    }


def get_setting_defaults_and_help(arguments_type: type) -> dict[str, tuple[str, str]]:
    """Return the options of a line that have a setting: its default, and what it is.

    Args:
        arguments_type: a dataclass made of `word`, `option` and `rest`.

    Returns:
        Default and help by name, for `%config CtxKit`.
    """
    return {
        f.name: (f.metadata["setting"], f.metadata["help"])
        for f in get_option_fields(arguments_type).values()
        if f.metadata["setting"] is not None
    }


def get_positional_fields(arguments_type: type) -> list[Field[Any]]:
    """The words of a dataclass, in order."""
    return [f for f in fields(arguments_type) if f.metadata["place"] == "word"]


def format_usage(arguments_type: type, magic: str) -> str:
    """Return how a line is written, with a line for each word and option, by task where they have
    one.

    Args:
        arguments_type: a dataclass made of `word`, `option` and `rest`.
        magic: the magic as it is written.

    Returns:
        The first line in brackets and capitals, then a line of help each, in columns.
    """
    rows: dict[str, list[tuple[str, str]]] = {}
    parts = []
    for name, f in get_option_fields(arguments_type).items():
        written = name if f.type == "bool" else f"{name} {f.name.rstrip('_').upper()}"
        parts.append(f"[{written}]")
        rows.setdefault(f.metadata["task"], []).append((written, f.metadata["help"]))
    has_tasks = any(rows)
    parts = [magic, *(["[OPTIONS]"] if has_tasks else parts)]
    for f in (f for f in fields(arguments_type) if f.metadata["place"] != "option"):
        written = f.name.upper()
        parts.append(written if f.default is MISSING else f"[{written}]")
        rows.setdefault("", []).append((written, f.metadata["help"]))
    width = max((len(written) for group in rows.values() for written, _ in group), default=0)
    lines = [" ".join(parts)]
    for task in sorted(rows, key=bool):
        lines += ["", f"{task}:"] if task else []
        lines += [f"  {written:<{width}}  {text}" for written, text in rows[task]]
    return "\n".join(lines)


def _convert_value(field_of_value: Field[Any], value: str, magic: str) -> Any:
    # Annotations are strings here; `int | None` is parsed as `int`.
    parse = {"int": int, "float": float}.get(str(field_of_value.type).removesuffix(" | None"), str)
    try:
        return parse(value)
    except ValueError:
        label = field_of_value.name.rstrip("_").replace("_", "-")
        raise BadArguments(f"`{magic}`: {label} must be a number, not {value!r}.") from None


_MAX = 200
# Maybe an assignment, then one or two `%`, the magic's name, and the words behind it.
_LINE = re.compile(r"^\s*(?:[\w.\[\]'\", ]+=\s*)?%{1,2}(\w+)[ \t]+(.*)$")


def make_completion_matcher(
    magics: Mapping[str, Mapping[str, type]],
    sources: Mapping[str, Callable[[], Iterable[str]]],
    default: str,
) -> Any:
    """Return an IPython matcher for some magics.

    Args:
        magics: for each magic the shapes of its lines, by its subcommands; `""`: it has none.
        sources: where the words of a kind (`session`, ...) come from; `path` is known here.
        default: the subcommand of a line that names none.

    Returns:
        A function for `shell.Completer.custom_matchers`; it gives at most 200 completions.
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
    arguments_types: Mapping[str, type],
    sources: Mapping[str, Callable[[], Iterable[str]]],
    default: str,
) -> tuple[str, list[str]]:
    """Complete the last word of a magic's line.

    Args:
        line: the line up to the cursor, without the name of the magic.
        arguments_types: the classes of its arguments by subcommand; `""`: it has none.
        sources: return the values of a kind of word (`session`, ...).
        default: the subcommand of a line that names none.

    Returns:
        The word that is being written, and its completions.
    """
    if default not in arguments_types:  # another magic's, or one without subcommands
        default = next(iter(arguments_types))
    seen = list(split_tokens(line))
    fragment = line[seen.pop().start :] if seen and not line.endswith((" ", "\t")) else ""
    done = [t.text for t in seen]
    if not done:
        words = [*filter(None, arguments_types), *get_option_fields(arguments_types[default])]
        return fragment, [w for w in words if w.startswith(fragment)]
    shape = arguments_types[done[0] if done[0] in arguments_types else default]
    before = done[1:] if done[0] in arguments_types else done
    options = get_option_fields(shape)
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
    places = get_positional_fields(shape)
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
    folder = expand_home(head + slash) if slash else Path()
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    names = [p.name + ("/" if p.is_dir() else "") for p in entries if p.name.startswith(tail)]
    names = [n for n in names if tail.startswith(".") or not n.startswith(".")]
    return [f'"{head}{slash}{n}"' if " " in n else f"{head}{slash}{n}" for n in names]
