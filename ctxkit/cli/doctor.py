"""`ctxkit doctor` and `completion`."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal, NamedTuple

import click
from click.shell_completion import get_completion_class

from ctxkit._internal.distribution_version_and_conflicts import (
    DISTRIBUTION,
    describe_module_conflict,
)
from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.cli import EXIT_WORSE
from ctxkit.cli.arguments_and_output import (
    CommandOutput,
    TableColumn,
    add_json_and_html_options,
    print_table,
)
from ctxkit.errors import CtxkitError

if TYPE_CHECKING:
    from collections.abc import Callable


FindingState = Literal["ready", "optional", "missing"]
"""Here; not here, and only some need it; not here, and everybody needs it (exit code 1)."""
_STATE_SIGNS: dict[FindingState, str] = {"ready": "ok", "optional": "-", "missing": "no"}
DOCTOR_COLUMNS = (
    TableColumn("about", "about"),
    TableColumn("state", "state"),
    TableColumn("finding", "what"),
)
_MAX_REASON_CHARS = 80
"""Maximum number of characters of a damaged package's error."""
_MAX_IMPORT_SECONDS = 120
"""Time limit for importing the notebook's packages."""
_REINSTALL = f"install {DISTRIBUTION} again."
_INSTALL_LAB = f"pip install '{DISTRIBUTION}[lab]'"


class DoctorFinding(NamedTuple):
    """The result of one check."""

    about: str
    state: FindingState
    finding: str


@click.command()
@add_json_and_html_options
@click.pass_context
def doctor_(context: click.Context, out: CommandOutput) -> None:
    """Say whether notebook, widgets, tokenizer, folders and models are ready."""
    findings = [_run_check(check) for check in DOCTOR_CHECKS]
    if out.json or out.html:
        out.table("ctxkit doctor", DOCTOR_COLUMNS, [f._asdict() for f in findings])
    else:
        print_table(
            (), (), [f"{_STATE_SIGNS[f.state]:<3} {f.about}: {f.finding}" for f in findings]
        )
    if any(f.state == "missing" for f in findings):
        context.exit(EXIT_WORSE)


def _run_check(check: Callable[[], DoctorFinding]) -> DoctorFinding:
    """Return what a check finds; what it falls over is missing."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  a damaged package may raise anything
        reason = f"{sanitize_line(str(error), _MAX_REASON_CHARS)}: {_REINSTALL}"
        return DoctorFinding(
            check.__name__.removeprefix("_check_").replace("_", " "), "missing", reason
        )


def _find_missing(*names: str) -> list[str]:
    """Return the packages that cannot be imported; of one that is there but damaged, why."""
    missing = []
    for name in names:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001  a damaged package may raise anything
            # a package that is there may fail as one that it imports is missing
            is_absent = isinstance(error, ModuleNotFoundError) and error.name == name
            missing.append(
                name
                if is_absent
                else f"{name} (damaged: {sanitize_line(str(error), _MAX_REASON_CHARS)})"
            )
    return missing


def _find_missing_apart(*names: str) -> list[str]:
    """Return what `_find_missing` does from another process, for packages of the notebook.

    No command of the terminal imports them, and a damaged one may end the process that does.
    """
    script = (
        "import json, sys; from ctxkit.cli.doctor import _find_missing;"
        " print(json.dumps(_find_missing(*sys.argv[1:])))"
    )
    try:
        done = subprocess.run(  # noqa: S603  our own Python, and names of packages
            [sys.executable, "-c", script, *names],
            capture_output=True,
            text=True,
            timeout=_MAX_IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        sentence = f"{', '.join(names)} cannot be imported in {_MAX_IMPORT_SECONDS} s"
        raise CtxkitError(sentence) from error
    if done.returncode:
        raise CtxkitError(f"{', '.join(names)} cannot be imported (exit code {done.returncode})")
    missing: list[str] = json.loads(done.stdout.splitlines()[-1])
    return missing


def _check_kit() -> DoctorFinding:
    import ctxkit

    if missing := _find_missing("msgspec", "numpy", "pandas"):
        return DoctorFinding("ctxkit", "missing", f"{', '.join(missing)} missing: {_REINSTALL}")
    if conflict := describe_module_conflict():
        return DoctorFinding("ctxkit", "missing", conflict)
    version = ".".join(map(str, sys.version_info[:3]))
    place = Path(ctxkit.__file__).parent
    return DoctorFinding(
        "ctxkit", "ready", f"{ctxkit.__version__} on Python {version}, in {place}."
    )


def _check_notebook() -> DoctorFinding:
    missing = [] if find_spec("jupyterlab") else ["jupyterlab"]  # its import takes two seconds
    missing += _find_missing_apart("ipykernel")
    if missing:
        what = ", ".join(missing)
        return DoctorFinding("notebook", "optional", f"{what} missing: {_INSTALL_LAB}.")
    return DoctorFinding(
        "notebook", "ready", "JupyterLab and its kernel are here: %load_ext ctxkit."
    )


def _check_widgets() -> DoctorFinding:
    missing = _find_missing_apart("ipywidgets", "anywidget", "plotly", "jupyterlab_widgets")
    if missing and missing != ["jupyterlab_widgets"]:
        names = ", ".join(name for name in missing if name != "jupyterlab_widgets")
        return DoctorFinding("widgets", "missing", f"{names} missing: {_REINSTALL}")
    if missing:
        sentence = f"jupyterlab_widgets missing: {_INSTALL_LAB}; texts are shown instead."
        return DoctorFinding("widgets", "optional", sentence)
    return DoctorFinding("widgets", "ready", "explore, tune and watch can be drawn.")


def _check_tokenizer() -> DoctorFinding:
    from ctxkit.tokens import can_count_exactly

    if can_count_exactly():
        return DoctorFinding(
            "tokenizer", "ready", "exact counts of OpenAI's o200k_base work offline."
        )
    return DoctorFinding("tokenizer", "missing", f"no vocabulary: {_REINSTALL}")


def _check_prices() -> DoctorFinding:
    from ctxkit.tokens.prices import price, table_version

    if price("claude-sonnet-4-5") is None:
        return DoctorFinding("prices", "missing", f"no table of prices: {_REINSTALL}")
    return DoctorFinding("prices", "ready", f"{table_version()}.")


def _check_folders() -> DoctorFinding:
    from collections import Counter

    from ctxkit.cli.session_index import list_log_files

    tools = Counter(f.tool for f in list_log_files())
    counts = ", ".join(f"{name} {n:,}" for name, n in tools.most_common())
    if not counts:
        sentence = "no sessions of known tools in your home: name files or folders yourself."
        return DoctorFinding("tools' folders", "optional", sentence)
    return DoctorFinding("tools' folders", "ready", f"files of {counts}.")


def _check_state_folder() -> DoctorFinding:
    from ctxkit.agent.ctxkit_folder_and_session_trust import get_user_state_folder

    folder = get_user_state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFile(dir=folder):
            return DoctorFinding("state folder", "ready", f"{folder} keeps what was seen.")
    except OSError as error:
        sentence = f"{folder} cannot be written ({error.strerror}): name another by XDG_STATE_HOME."
        return DoctorFinding("state folder", "missing", sentence)


def _check_models() -> DoctorFinding:
    from ctxkit.agent.models.litellm_provider import list_set_key_variables

    keys = list_set_key_variables()
    local = "local models with xllamacpp" if find_spec("xllamacpp") else ""
    listed = ", ".join(filter(None, (*(f"{k} is set" for k in keys), local)))
    if listed:
        return DoctorFinding("models", "ready", f"{listed}.")
    sentence = "no key is set (OPENAI_API_KEY, ...): replays need none, %%agent needs one."
    return DoctorFinding("models", "optional", sentence)


DOCTOR_CHECKS: tuple[Callable[[], DoctorFinding], ...] = (
    _check_kit,
    _check_notebook,
    _check_widgets,
    _check_tokenizer,
    _check_prices,
    _check_folders,
    _check_state_folder,
    _check_models,
)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_(shell: str) -> None:
    """Print the completion for SHELL; to use it now: eval "$(ctxkit completion bash)"."""
    from ctxkit.cli.app import app

    completion_class = get_completion_class(shell)
    if completion_class is not None:
        sys.stdout.write(completion_class(app, {}, "ctxkit", "_CTXKIT_COMPLETE").source() + "\n")
