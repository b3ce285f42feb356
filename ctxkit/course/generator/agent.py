"""The four tools of the sample's agent, working for real on the made-up repository, and its habits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.course.generator.repository import numbered, search

if TYPE_CHECKING:
    import random

    from ctxkit.course.generator.tape import Tape

Asked = tuple[str, dict[str, Any], str, bool]


class Agent:
    """What the agent does in one turn, written on a tape."""

    def __init__(self, tape: Tape, files: dict[str, str], rng: random.Random) -> None:
        self.tape, self.files, self.rng = tape, files, rng
        self.passed = 17

    # -- tools ---------------------------------------------------------------------------------------------------

    def read(self, path: str, first: int = 1, last: int | None = None) -> Asked:
        asked: dict[str, Any] = (
            {"path": path}
            if (first, last) == (1, None)
            else {"path": path, "first": first, "last": last}
        )
        if path not in self.files:
            return "read_file", asked, f"no such file: {path}", True
        return "read_file", asked, numbered(self.files[path], first, last), False

    def search(self, pattern: str, under: str = "") -> Asked:
        return (
            "search",
            {"pattern": pattern, "path": under or "."},
            search(self.files, pattern, under),
            False,
        )

    def edit(self, path: str, old: str, new: str) -> Asked:
        asked = {"path": path, "old": old, "new": new}
        if old not in self.files.get(path, ""):
            return "edit", asked, f"{path}: the old text was not found; read the file again", True
        self.files[path] = self.files[path].replace(old, new)
        return "edit", asked, f"edited {path}: {new.count(chr(10)) + 1} lines now", False

    def create(self, path: str, text: str) -> Asked:
        self.files[path] = text
        return (
            "edit",
            {"path": path, "old": "", "new": text},
            f"created {path}: {len(text.splitlines())} lines",
            False,
        )

    @staticmethod
    def run(command: str, output: str, *, failed: bool = False) -> Asked:
        return "run", {"command": command}, output, failed

    def tests(self, *names: str, failure: str = "") -> Asked:
        """Run tests; `failure` is what pytest prints for the one that fails."""
        paths = [f"tests/test_{n}.py" for n in names]
        n = self.passed if not names else 3 * len(names)
        dots, seconds = "." * n, f"{0.31 * n + self.rng.random():.2f}s"
        if not failure:
            return self.run(
                f"pytest -q {' '.join(paths)}".strip(), f"{dots} [100%]\n{n} passed in {seconds}"
            )
        body = f"{dots[:-1]}F [100%]\n{'=' * 25} FAILURES {'=' * 25}\n{failure}\n1 failed, {n - 1} passed in {seconds}\nexit status 1"
        return self.run(f"pytest -q {' '.join(paths)}".strip(), body, failed=True)

    # -- habits --------------------------------------------------------------------------------------------------

    def change(self, module: str, old: str, new: str, *, why: str, imported: str = "") -> None:
        """Look, edit, run the tests; now and then the first try is wrong."""
        path, do = f"billing/{module}.py", self.tape.step
        if old not in self.files[path]:
            do(
                self.search(old.split("(", maxsplit=1)[0].rsplit(maxsplit=1)[-1], path),
                text=f"{path} may have it under another form.",
            )
            return
        if self.rng.random() < 0.3:
            do(self.search(f"{module}\\.", "tests/"), text="Who else uses it?")
        do(self.read(path), thinking=why if self.rng.random() < 0.4 else "")
        if self.rng.random() < 0.3:
            do(self.edit(path, old.replace("    ", "  ", 1) + " ", new))
            line = next(
                i
                for i, t in enumerate(self.files[path].splitlines(), 1)
                if old.splitlines()[0] in t
            )
            do(
                self.read(path, max(1, line - 4), line + 6),
                text="The old text differs in its spaces; I read those lines again.",
            )
        do(self.edit(path, old, new))
        head = "import datetime as dt\n"
        if imported and imported not in self.files[path]:
            if self.rng.random() < 0.35:
                do(
                    self.tests(
                        module,
                        failure=f"E   NameError: name '{imported.rsplit(maxsplit=1)[-1]}' is not defined ({path})",
                    )
                )
            do(
                self.edit(path, head, f"{head}{imported}\n"),
                text="The import is missing." if self.rng.random() < 0.5 else "",
            )
        if self.rng.random() < 0.25:
            do(
                self.tests(
                    module,
                    failure=f"E   AssertionError: {module}: assert {self.rng.randrange(100, 9999)} == 0\ntests/test_{module}.py:{self.rng.randrange(9, 24)}: AssertionError",
                )
            )
            do(
                self.read(f"tests/test_{module}.py"),
                thinking="The test fakes the row without a currency, so it fails for another reason than my change.",
            )
            do(
                self.edit(
                    f"tests/test_{module}.py", 'currency="EUR"', 'currency="EUR", seller="DE"'
                )
            )
        do(self.tests(module))
