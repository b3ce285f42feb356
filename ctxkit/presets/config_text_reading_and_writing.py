"""JSON, JSON5, YAML, TOML and env files: bounded text to plain values, and back."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit._internal.safe_files import expand_home
from ctxkit.errors import BadArguments, ReadError, UnknownFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


MAX_BYTES = 1_000_000
MAX_SLOW_CHARS = 100_000
"""Characters that the JSON5 parser is given; it reads about 40,000 a second."""
_VARIABLE = re.compile(r"[A-Za-z_]\w{0,200}")
LINE_BREAKS = frozenset("\x85\u2028\u2029")
CONFIG_NOTE = (
    "The parts that ctxkit's rules hold; put them into your own file beside all else that it says."
)


def load_config(path: str | Path) -> tuple[dict[str, Any], str]:
    """Parse a config file; return its values and its syntax.

    The syntax is `json` (comments allowed), `yaml` or `toml`.

    Args:
        path: a file of at most `MAX_BYTES`; its suffix or its content decides the syntax.

    Returns:
        (keys and values, syntax).

    Raises:
        ReadError: it is no file, too large, no text, or broken.
        UnknownFormat: it holds no keys and values.
        BadArguments: a section names a key twice, of which a reader keeps the last.
    """
    text = _text(expand_home(path))
    # without a known suffix all parsers are tried; YAML is last, as it takes nearly any text
    suffix = Path(path).suffix.lower() or Path(path).name.lower()  # `.env` is all name
    parsers = [_SUFFIXES[suffix]] if suffix in _SUFFIXES else ["json", "toml", "yaml"]
    why = ""
    for syntax in parsers:
        try:
            value = _PARSERS[syntax](text)
        except RecursionError:
            raise ReadError("The file is nested too deeply for a config file.", path) from None
        except ValueError as error:
            why = why or _reason(error)
            continue
        if isinstance(value, dict):
            return value, syntax
        raise UnknownFormat("This is no config file: it holds no keys and values.", path)
    raise ReadError(f"This cannot be read as a config file: {why}.", path)


def dump_config(tree: Mapping[str, Any], syntax: str) -> str:
    """Return a config as text.

    Args:
        tree: the settings, nested as in the file.
        syntax: "json", "yaml", "toml" (flat, and tables of one level) or "env" (flat).
    """
    return {"json": _to_json, "yaml": _to_yaml, "toml": _to_toml, "env": _to_env}[syntax](tree)


def _reason(error: ValueError) -> str:
    """Return why a text is no config, in the words of its parser but for Python's on digits."""
    message = sanitize_text(" ".join(str(error).split()), 300).rstrip(".")
    return f"it {LONG_NUMBER}" if "integer string conversion" in message else message


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise ReadError(
                "There is no such file." if not path.exists() else "This is no file.", path
            )
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ReadError(f"The file cannot be opened: {error.strerror}.", path) from None
    if len(data) > MAX_BYTES:
        raise ReadError(f"A config file has at most {MAX_BYTES:,} bytes; this one is larger.", path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ReadError("A config file is text in UTF-8; this one is not.", path) from None


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_section)
    except ValueError:
        # JSON5 is tried only where plain JSON fails, as its parser is slow
        if len(text) > MAX_SLOW_CHARS:
            raise
    import json5

    return json5.loads(text, object_pairs_hook=_section)


def _section(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    pair_list = list(pairs)
    section = dict(pair_list)
    if len(section) < len(pair_list):
        duplicate = next(k for k, n in Counter(k for k, _ in pair_list).items() if n > 1)
        raise BadArguments(
            f"A section names {sanitize_text(duplicate, 60)!r} a second time: give each a name of "
            "its own."
        )
    return section


def _yaml(text: str) -> Any:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # the events are checked before any value is built, so that nothing is unfolded first
        check_yaml_events(yaml.parse(text, Loader=loader))
        try:
            return yaml.load(text, Loader=loader)  # noqa: S506  a safe one, in C if there is one
        except (ArithmeticError, AttributeError, LookupError, TypeError):
            raise ValueError("a value is not of the kind that it looks like") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _env(text: str) -> Any:
    """Return the variables of a file such as `.env`: a name, `=` and a value on each line."""
    variables: dict[str, str] = {}
    for number, row in enumerate(text.splitlines(), 1):
        assignment = row.strip().removeprefix("export ").lstrip()
        if not assignment or assignment.startswith("#"):
            continue
        name, sign, value = assignment.partition("=")
        if not sign or not _VARIABLE.fullmatch(name.strip()):
            raise ValueError(f"line {number} is no NAME=VALUE")
        value = value.strip()
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        variables[name.strip()] = value[1:-1] if quoted else value.partition(" #")[0].rstrip()
    return variables


def _to_env(tree: Mapping[str, Any]) -> str:
    return "\n".join([f"# {CONFIG_NOTE}", *(f"{k}={v}" for k, v in tree.items()), ""])


def _to_json(tree: Mapping[str, Any]) -> str:
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def _to_yaml(tree: Mapping[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Escapes the rarer line breaks, which a reader folds to a blank."""

    def text(dumper: Any, value: str) -> Any:
        style = '"' if LINE_BREAKS.intersection(value) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return f"# {CONFIG_NOTE}\n" + yaml.dump(
        dict(tree), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
    )


def _to_toml(tree: Mapping[str, Any]) -> str:
    lines = [
        f"# {CONFIG_NOTE}",
        *(f"{k} = {_scalar(v)}" for k, v in tree.items() if not isinstance(v, dict)),
    ]
    for name, table in tree.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{k} = {_scalar(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    raise BadArguments(f"{value!r} cannot be written as TOML.")


_PARSERS: dict[str, Callable[[str], Any]] = {
    "json": _json,
    "toml": _toml,
    "yaml": _yaml,
    "env": _env,
}
_SUFFIXES = {
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonc": "json",
    ".json5": "json",
    ".env": "env",
}


MAX_DEPTH = 100
MAX_VALUES = 1_000_000
"""Values of a YAML file with its aliases unfolded; a file without aliases holds fewer."""
MAX_DIGITS = 1000
"""Characters of a number."""
LONG_NUMBER = f"has a number of more than {MAX_DIGITS:,} characters: write a shorter one"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Section:
    """A list or section while its events go by, or a value that has an anchor."""

    def __init__(self, *, is_mapping: bool = False, is_open: bool = False) -> None:
        self.is_mapping, self.is_open = is_mapping, is_open
        self.size = 1
        """Values in it so far, itself included, aliases unfolded."""
        self.at_key = is_mapping
        self.keys: set[str] = set()


# A guard against YAML files that are small and unfold to something huge ("billion laughs"). One
# pass over the parser's events keeps a stack of open sections. Each section counts its values with
# aliases unfolded: an alias adds the size of what its anchor holds, so that nothing is unfolded in
# memory. An alias to a section that is still open contains itself. The first entry of the stack
# stands for the whole file. Cost: linear in the events, whatever they would unfold to.
def check_yaml_events(events: Iterable[Any]) -> None:
    """Refuse what is too deep, unfolds to more values than anybody wrote, contains itself, has a
    number that is too long, or names a key twice.

    Args:
        events: as `yaml.parse` yields them.

    Raises:
        RecursionError: it is nested too deeply.
        ValueError: it is one of the others; the sentence names the line.
        BadArguments: a section names a key twice, of which the last alone would count.
    """
    import yaml

    anchored: dict[str, _Section] = {}
    open_sections = [_Section(is_open=True)]
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            node = open_sections.pop()
            node.is_open, size = False, node.size
        elif isinstance(event, yaml.NodeEvent):
            _take_key(open_sections[-1], event)
            if isinstance(event, yaml.CollectionStartEvent):
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                open_sections.append(_Section(is_mapping=is_mapping, is_open=True))
                if event.anchor:
                    anchored[event.anchor] = open_sections[-1]
                if len(open_sections) > MAX_DEPTH + 1:
                    raise RecursionError
                continue
            size = _size(event, anchored)
        else:
            continue
        open_sections[-1].size += size
        if open_sections[-1].size > MAX_VALUES:
            raise ValueError("its aliases unfold to too many values")


def _size(event: Any, anchored: dict[str, _Section]) -> int:
    """Return how many values a scalar or an alias stands for."""
    line, value = event.start_mark.line + 1, getattr(event, "value", None)
    if value is None:
        node = anchored.get(event.anchor)
        if node is not None and node.is_open:
            name = sanitize_text(event.anchor, 60)
            raise ValueError(f"line {line}: {name} contains itself: write out what it holds")
        return 1 if node is None else node.size
    if len(value) > MAX_DIGITS and _tag(event) in _NUMBERS:
        raise ValueError(f"line {line} {LONG_NUMBER}")
    if event.anchor:
        anchored[event.anchor] = _Section()
    return 1


def _tag(scalar: Any) -> str:
    """Return the tag of a scalar: its own, or what a plain one looks like."""
    import yaml

    if not scalar.implicit[0]:
        return str(scalar.tag)
    resolver: Any = yaml.SafeLoader("")
    return str(resolver.resolve(yaml.ScalarNode, scalar.value, (True, False)))


def _take_key(section: _Section, event: Any) -> None:
    """Record a key; every second event of a mapping is a value."""
    if not section.is_mapping:
        return
    is_key, section.at_key = section.at_key, not section.at_key
    key = getattr(event, "value", None)
    # a merge key may be in a section more than once; a key that is no scalar has no text
    if not is_key or key is None or key == "<<":
        return
    if key in section.keys:
        raise BadArguments(
            f"Line {event.start_mark.line + 1} names {sanitize_text(key, 60)!r} a second time "
            "in one"
            " section: give each a name of its own."
        )
    section.keys.add(key)
