"""Bounded reading and writing of JSON, JSON5, YAML, TOML and env files."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
from ctxkit.errors import BadArguments, ReadError, UnknownFormat
from ctxkit.presets.yaml_checks import LONG_NUMBER, check_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_BYTES = 1_000_000
MAX_SLOW_CHARS = 100_000
"""Characters up to which the JSON5 parser is tried; it reads about 40,000 per second."""
_VARIABLE = re.compile(r"[A-Za-z_]\w{0,200}")
LINE_BREAKS = frozenset("\x85\u2028\u2029")
CONFIG_NOTE = (
    "The parts that ctxkit's rules hold; put them into your own file beside all else that it says."
)


def load_config(path: str | Path) -> tuple[dict[str, Any], str]:
    """Read a config file; return its content and syntax: `json`, `yaml`, `toml` or `env`.

    Raises:
        ReadError: the path is no file, or the file is too large, no text, or malformed.
        UnknownFormat: the content is not a mapping.
        BadArguments: a section has a duplicate key, of which a parser would keep the last.
    """
    text = _read_text(Path(path).expanduser())
    suffix = Path(path).suffix.lower() or Path(path).name.lower()  # `.env` is all name
    # without a known suffix the strictest syntax is tried first: YAML accepts almost any text
    parsers = [_SUFFIXES[suffix]] if suffix in _SUFFIXES else ["json", "toml", "yaml"]
    why = ""
    for syntax in parsers:
        try:
            value = _PARSERS[syntax](text)
        except RecursionError:
            raise ReadError("The file is nested too deeply for a config file.", path) from None
        except ValueError as error:
            why = why or _explain_parse_error(error)
            continue
        if isinstance(value, dict):
            return value, syntax
        raise UnknownFormat("This is no config file: it holds no keys and values.", path)
    raise ReadError(f"This cannot be read as a config file: {why}.", path)


def dump_config(tree: Mapping[str, Any], syntax: str) -> str:
    """Return a config as text in `json`, `yaml` or `toml` (flat, and tables of one level)."""
    return {"json": _to_json, "yaml": _to_yaml, "toml": _to_toml, "env": _to_env}[syntax](tree)


def _explain_parse_error(error: ValueError) -> str:
    """Return the parser's message, or our own for a number with too many digits."""
    message = sanitize_text(" ".join(str(error).split()), 300).rstrip(".")
    return f"it {LONG_NUMBER}" if "integer string conversion" in message else message


def _read_text(path: Path) -> str:
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


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_make_section)
    except ValueError:
        if len(text) > MAX_SLOW_CHARS:
            raise
    # JSON5 (comments, trailing commas) is much slower, so it is tried last and on small files only
    import json5

    return json5.loads(text, object_pairs_hook=_make_section)


def _make_section(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    entries = list(pairs)
    section = dict(entries)
    if len(section) < len(entries):
        duplicate = next(k for k, n in Counter(k for k, _ in entries).items() if n > 1)
        raise BadArguments(
            f"A section names {sanitize_text(duplicate, 60)!r} a second time: give each a name of "
            "its own."
        )
    return section


def _parse_yaml(text: str) -> Any:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        check_events(yaml.parse(text, Loader=loader))
        try:
            return yaml.load(text, Loader=loader)  # noqa: S506  a safe one, in C if there is one
        except (ArithmeticError, AttributeError, LookupError, TypeError):
            raise ValueError("a value is not of the kind that it looks like") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _parse_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _parse_env(text: str) -> Any:
    """Return the variables of an env file with lines NAME=VALUE."""
    variables: dict[str, str] = {}
    for number, raw_line in enumerate(text.splitlines(), 1):
        line = raw_line.strip().removeprefix("export ").lstrip()
        if not line or line.startswith("#"):
            continue
        name, sign, value = line.partition("=")
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
        *(f"{k} = {_format_toml_value(v)}" for k, v in tree.items() if not isinstance(v, dict)),
    ]
    for name, table in tree.items():
        if isinstance(table, dict):
            lines += [
                "",
                f"[{name}]",
                *(f"{k} = {_format_toml_value(v)}" for k, v in table.items()),
            ]
    return "\n".join(lines) + "\n"


def _format_toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format_toml_value, value))}]"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    raise BadArguments(f"{value!r} cannot be written as TOML.")


_PARSERS: dict[str, Callable[[str], Any]] = {
    "json": _parse_json,
    "toml": _parse_toml,
    "yaml": _parse_yaml,
    "env": _parse_env,
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
