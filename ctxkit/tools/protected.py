"""Names that an agent's file tools do not write unless allowed: what is in them runs by itself.

Somebody opens a shell or an editor, runs the tests or asks for a `git status`, and has run what
stands there. Names are compared without case, wherever they lie below the root; reading is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, StoreError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

PROTECTED = (
    # what a version control system runs, and who one is to it
    ".git", ".hg", ".svn", ".gitconfig", ".gitmodules", ".husky",
    ".pre-commit-config.yaml", ".github/workflows", ".github/actions", ".gitlab-ci.yml",
    # sessions of the kit, and what fuseraft puts into prompts
    ".ctxkit", ".fuseraft",
    # shells
    ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
    ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc",
    ".config/fish", ".ssh",
    # Python and notebooks
    "conftest.py", "sitecustomize.py", "usercustomize.py", ".pth", ".ipython", ".jupyter",
    ".pypirc",
    # editors, agents and package managers
    ".claude", ".cursor",
    ".vscode", ".idea", ".devcontainer", ".vimrc", ".exrc", ".nvimrc", ".npmrc", ".yarnrc.yml",
)  # fmt: skip
"""Names of files and folders, or ends of paths; `.pth` is any file of that kind."""


def allowed(names: Sequence[str]) -> frozenset[str]:
    """Return names that shall be allowed.

    Raises:
        BadArguments: one is not protected.
    """
    for name in names:
        if name not in PROTECTED:
            raise BadArguments(
                f"{name!r} is no protected name.{did_you_mean(name, PROTECTED)} Those are: "
                f"{', '.join(PROTECTED)}."
            )
    return frozenset(names)


def check(path: str, parts: Sequence[str], allowed: Collection[str]) -> None:
    """Let a path be written that holds no protected name, or one that is allowed.

    Args:
        path: as the agent gave it.
        parts: its parts below the root, without links.
        allowed: names out of `PROTECTED`.

    Raises:
        StoreError: it is not allowed; the sentence says how it can be.
    """
    plain = "/".join(["", *(p.casefold().rstrip(" .") or p for p in parts), ""])
    for name in PROTECTED:
        held = f"/{name}/" in plain or (name == ".pth" and plain.endswith(".pth/"))
        if held and name not in allowed:
            raise StoreError(
                f"{path[:200]!r} was not written: what is in {name} runs by itself. The user can "
                f"allow it by `--allow {name}`."
            )
