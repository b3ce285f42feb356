"""The distribution is `jupyter-ctxkit`; another one that installs a module `ctxkit` is named."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
from cli.command_runner import ctxkit as run_command
from cli.command_runner import environment

import ctxkit
from ctxkit._internal import (
    DISTRIBUTION,
    get_version,
    list_other_owners,
)

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TEXT_SUFFIXES = {
    ".py",
    ".pyi",
    ".md",
    ".ipynb",
    ".toml",
    ".yml",
    ".yaml",
    ".txt",
    ".js",
    ".css",
    "",
}
OLD_INSTALL = re.compile(
    r"(?:pip3? install|pipx install|pipx run|uvx|uv add|uv tool install|uv tool run|--with)\b"
    r"[^\n`]*?(?<![\w./-])ctxkit(?![\w./-])"
)
OLD_EXTRA = re.compile(r"(?<![\w-])ctxkit\\?\[[a-z-]")
EXTRA = re.compile(r"jupyter-ctxkit\[([a-z,-]+)\]")


def read_tree() -> dict[str, str]:
    """Return the text of every file of the repository by its path."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return {
        str(p.relative_to(ROOT)): p.read_text(encoding="utf-8", errors="replace")
        for p in paths
        if p.suffix in TEXT_SUFFIXES and p.is_file() and p != Path(__file__)
    }


@pytest.fixture(scope="module")
def tree() -> dict[str, str]:
    return read_tree()


@pytest.mark.parametrize(
    "line",
    [
        "pip install ctxkit",
        "run: pip install -U ctxkit",
        "%pip install 'ctxkit'",
        "uvx ctxkit list",
        "uv run --with ctxkit python",
        "pipx install ctxkit",
    ],
)
def test_an_old_install_command_would_be_found(line):
    assert OLD_INSTALL.search(line)


def test_no_file_installs_somebody_elses_program(tree):
    assert len(tree) > 500
    old = [
        f"{path}: {line.strip()[:120]}"
        for path, text in tree.items()
        for line in text.splitlines()
        if OLD_INSTALL.search(line) or OLD_EXTRA.search(line)
    ]
    assert old == []


def test_no_address_is_given_that_does_not_exist(tree):
    """The project has no public page yet."""
    made_up = re.compile(r"github\.com/ctxkit/|mybinder\.org|colab\.research\.google")
    assert [path for path, text in tree.items() if made_up.search(text)] == []
    assert "urls" not in PROJECT


def test_every_extra_that_is_named_is_there(tree):
    named = {e for text in tree.values() for m in EXTRA.findall(text) for e in m.split(",")}
    assert {"live", "lab", "local", "documents"} <= named
    assert named <= {*PROJECT["optional-dependencies"]}


def test_both_commands_run_the_same_function():
    scripts = {e.name: e.value for e in entry_points(group="console_scripts")}
    assert scripts["ctxkit"] == scripts["jupyter-ctxkit"] == "ctxkit.cli:run"


def test_the_version_is_that_of_the_installed_package():
    assert PROJECT["name"] == DISTRIBUTION == "jupyter-ctxkit"
    assert version(DISTRIBUTION) == get_version() == ctxkit.__version__ == PROJECT["version"]


def test_jupyter_finds_the_command():
    jupyter = Path(sys.executable).with_name("jupyter")
    if not jupyter.exists():
        pytest.skip("jupyter is not installed")
    done = subprocess.run(
        [jupyter, "ctxkit", "--version"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, f"ctxkit, version {ctxkit.__version__}\n")


def add_distribution(folder: Path, name: str, **files: str) -> Path:
    """Write the metadata of an installed distribution."""
    info = folder / f"{name.replace('-', '_')}-2.2.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.2.5\n")
    for file, text in files.items():
        (info / file.replace("_txt", ".txt")).write_text(text)
    return folder


RIVALS = {
    "by its files": ("prompt-maker", {"RECORD": "prompt_maker/a.py,,\nctxkit/__init__.py,,\n"}),
    "by one file": ("one-file", {"RECORD": "ctxkit.py,,\n"}),
    "by its list of modules": ("older-build", {"top_level_txt": "other\nctxkit\n"}),
    "by its name": ("ctxkit", {"RECORD": "__editable__.ctxkit.pth,,\n"}),
}


@pytest.mark.parametrize("rival", RIVALS.values(), ids=RIVALS)
def test_another_owner_of_the_module_is_named(rival, tmp_path, monkeypatch):
    name, files = rival
    monkeypatch.syspath_prepend(add_distribution(tmp_path, name, **files))
    assert list_other_owners() == [f"{name} 2.2.5"]


def test_a_distribution_with_a_similar_module_is_none(tmp_path, monkeypatch):
    record = "ctxkit_tools/a.py,,\nmy/ctxkit/a.py,,\nnotctxkit/a.py,,\nctxkit.txt,,\n"
    monkeypatch.syspath_prepend(add_distribution(tmp_path, "similar", RECORD=record))
    assert list_other_owners() == []


def with_rival(home: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{add_distribution(home / 'site', 'ctxkit', RECORD='ctxkit/main.py,,')}"}


SENTENCE = "ctxkit 2.2.5 installs a module ctxkit, too"


def test_the_command_line_names_it_once_and_goes_on(tmp_path):
    done = run_command(tmp_path, "list", **with_rival(tmp_path))
    assert done.returncode == 0
    assert done.stderr.count(SENTENCE) == 1
    assert done.stderr.startswith("ctxkit: ")
    assert "pip install --force-reinstall jupyter-ctxkit" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_doctor_names_it_once_and_fails(tmp_path):
    done = run_command(tmp_path, "doctor", **with_rival(tmp_path))
    shown = " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (1, "")
    assert shown.count(SENTENCE) == 1
    assert "no ctxkit: " + SENTENCE in shown


@pytest.mark.parametrize("is_there", [True, False])
def test_loading_the_extension_names_it_once(is_there, tmp_path):
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance()\n"
        "s.run_line_magic('load_ext', 'ctxkit'); print('%%agent' and 'loaded')"
    )
    more = with_rival(tmp_path) if is_there else {}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path, **more),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "loaded\n"
    assert done.stderr.count(SENTENCE) == is_there


def test_import_alone_takes_less_than_10_ms(tmp_path):
    code = (  # of this tree, as `-I` passes over PYTHONPATH
        f"import sys, time; sys.path.insert(0, {str(Path(ctxkit.__file__).parents[1])!r}); "
        "t = time.process_time(); import ctxkit; "
        "print(time.process_time() - t, 'importlib.metadata' in sys.modules)"
    )
    command = [sys.executable, "-I", "-c", code]
    printed = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        for _ in range(5)
    ]
    assert min(float(each.split()[0]) for each in printed) < 0.010
    assert printed[0].split()[1] == "False"
