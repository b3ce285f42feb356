"""A generated repository, and the simulated agent whose tools read, search and edit its files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from ctxkit.course.generator.session_recorder import SessionRecorder, ToolRun

MODULES = {
    "refunds": ("Refund", "money that goes back to a customer"),
    "credit_notes": ("CreditNote", "what corrects an invoice that was already sent"),
    "payments": ("Payment", "money that came in, by card or by bank"),
    "subscriptions": ("Subscription", "plans that bill again every period"),
    "dunning": ("Reminder", "letters about invoices that are overdue"),
    "discounts": ("Discount", "what is taken off before tax"),
    "ledger": ("Entry", "double entries for the accounts"),
    "payouts": ("Payout", "what partners are owed at the end of a month"),
    "usage": ("Meter", "metered units and what they cost"),
    "quotes": ("Quote", "offers that are not yet invoices"),
    "deposits": ("Deposit", "money held until a contract ends"),
    "vouchers": ("Voucher", "codes that pay for a part of an invoice"),
    "statements": ("Statement", "what a customer sees once a month"),
    "settlements": ("Settlement", "files from the card processor, matched to payments"),
}

_MODULE_HEAD = '''"""{title}: {what}."""
import datetime as dt
import logging
from decimal import Decimal

from billing.db import session
from billing.models import {cls}

log = logging.getLogger(__name__)
BATCH = {batch}
GRACE_DAYS = {grace}
'''

_FUNCTIONS = (
    '''
def {one}_total({one}):
    """All lines of one {one}, in minor units."""
    return int(sum(line.amount for line in {one}.lines) * 100)
''',
    '''
def open_{name}(day):
    """Those not yet closed on a day, oldest first."""
    rows = session().query({cls}).filter({cls}.closed_on.is_(None)).filter({cls}.issued_on <= day)
    return rows.order_by({cls}.updated_at).limit(BATCH).all()
''',
    """
def close_{one}({one}_id, reason):
    {one} = session().get({cls}, {one}_id)
    if {one}.closed_on is not None:
        raise ValueError(f"{one} {{{one}_id}} was closed on {{{one}.closed_on}}")
    {one}.closed_on = dt.datetime.utcnow().date()
    log.info("closed {one} %s: %s", {one}_id, reason)
""",
    '''
def overdue_{name}(today):
    """Those past their due date by more than the grace period."""
    limit = today - dt.timedelta(days=GRACE_DAYS)
    return [row for row in open_{name}(today) if row.due_on < limit]
''',
    '''
def {one}_row({one}):
    """One line of the monthly file; finance reads these columns by position."""
    return {{
        "id": {one}.id,
        "customer": {one}.customer.name,
        "issued_on": {one}.issued_on.isoformat(),
        "currency": {one}.currency,
        "amount": int({one}.amount * 100),
        "status": {one}.status,
    }}
''',
    '''
def import_{name}(rows):
    """Create what a partner's file holds; the same external id twice is an error."""
    seen = set()
    for row in rows:
        if row["external_id"] in seen:
            raise ValueError(f"twice in one file: {{row['external_id']}}")
        seen.add(row["external_id"])
        session().add({cls}(amount=Decimal(row["amount"]), currency=row["currency"], \
note=row.get("note", "")))
    log.info("imported %d {name} at %s", len(seen), dt.datetime.utcnow().isoformat())
''',
    '''
def find_{name}(customer=None, currency=None, status=None, since=None, text=None):
    """Search for the back office; every filter is optional, and all of them must hold."""
    query = session().query({cls})
    if customer is not None:
        query = query.filter({cls}.customer_id == customer)
    if currency is not None:
        query = query.filter({cls}.currency == currency)
    if status is not None:
        query = query.filter({cls}.status.in_(status))
    if since is not None:
        query = query.filter({cls}.issued_on >= since)
    if text:
        query = query.filter({cls}.note.ilike(f"%{{text}}%"))
    return query.order_by({cls}.issued_on.desc(), {cls}.id).limit(BATCH)
''',
    '''
def move_{name}(source, target):
    """When two customers turn out to be one: everything of the first goes to the second, \
and a note says so."""
    moved = 0
    for row in session().query({cls}).filter({cls}.customer_id == source.id).with_for_update():
        if row.closed_on is not None and row.status != "draft":
            log.warning("{one} %s is closed and stays with %s", row.id, source.id)
            continue
        row.customer_id = target.id
        row.note = f"{{row.note}} (was {{source.name}})".strip()
        moved += 1
    log.info("moved %d {name} from %s to %s", moved, source.id, target.id)
    return moved
''',
    '''
def {name}_by_month(rows):
    """Counts and sums a month and currency, for the report that goes to the board."""
    months = {{}}
    for row in rows:
        key = (row.issued_on.strftime("%Y-%m"), row.currency)
        count, amount = months.get(key, (0, Decimal("0")))
        months[key] = (count + 1, amount + row.amount)
    return [
        {{"month": month, "currency": currency, "count": count, "amount": str(amount)}}
        for (month, currency), (count, amount) in sorted(months.items())
    ]
''',
)

_FIXED_FILES = {
    "billing/money.py": '''from decimal import Decimal, ROUND_HALF_UP

# minor-unit exponents of the currencies that we bill in
EXPONENTS = {
    "EUR": 2,
    "USD": 2,
    "GBP": 2,
    "SEK": 2,
    "JPY": 0,
}


def to_minor(amount, currency):
    """An amount in minor units, as an int."""
    if not isinstance(amount, Decimal):
        raise TypeError("amount must be Decimal")
    exponent = EXPONENTS[currency]
    return int((amount * Decimal(10) ** exponent).quantize(Decimal("1"), rounding=ROUND_HALF_UP))
''',
    "billing/markets.py": """from decimal import Decimal

MARKETS = [
    Market("DE", currency="EUR", vat=Decimal("0.19")),
    Market("FR", currency="EUR", vat=Decimal("0.20")),
    Market("SE", currency="SEK", vat=Decimal("0.25")),
    Market("GB", currency="GBP", vat=Decimal("0.20")),
    Market("JP", currency="JPY", vat=Decimal("0.10")),
    Market("IS", currency="ISK", vat=Decimal("0.24")),  # live since 2026-03-09
]
""",
    "billing/clock.py": '''"""The one place that knows what time it is, so that tests can set it."""
import datetime as dt


def now():
    return dt.datetime.now(dt.timezone.utc)


def today():
    return now().date()
''',
    "jobs/export_invoices.py": """import csv
import datetime as dt
import logging

from billing.db import session
from billing.models import Invoice
from billing.money import to_minor

log = logging.getLogger(__name__)
COLUMNS = ["invoice_id", "customer", "issued_on", "due_on", "currency", "amount_minor", "status"]
PAGE = 500


def invoices(day):
    offset = 0
    while True:
        query = session().query(Invoice).filter(Invoice.issued_on == day)
        rows = query.order_by(Invoice.updated_at).limit(PAGE).offset(offset).all()
        if not rows:
            return
        yield from rows
        offset += PAGE


def export(day, path):
    with open(path, "w", newline="") as f:
        writer = csv.DictWriter(f, COLUMNS)
        writer.writeheader()
        n = 0
        for invoice in invoices(day):
            writer.writerow(row(invoice))
            n += 1
    log.info("exported %d invoices to %s", n, path)
    return n


def row(invoice):
    return {
        "invoice_id": invoice.id,
        "customer": invoice.customer.name,
        "issued_on": invoice.issued_on.isoformat(),
        "due_on": invoice.due_on.isoformat(),
        "currency": invoice.currency,
        "amount_minor": to_minor(invoice.amount, invoice.currency),
        "status": invoice.status,
    }
""",
    "docs/runbook.md": """# Runbook: nightly export

* Runs at 02:00 UTC on `bill-worker-3`, writes `/data/export/DAY.csv`, one file a day.
* Finance reads the folder through the queue `fin-import-7`. Pause it before a file is replaced:
  `ctl queue pause fin-import-7`, and `ctl queue resume fin-import-7` afterwards. Ask finance first.
* Export one day again: `python -m jobs.export_invoices --day 2026-01-31 --out \
/data/export/2026-01-31.csv`
* The importer goes by the position of a column, not by its name.
* A row that was imported twice has to be taken out by hand: `ctl import undo INVOICE_ID`.
""",
    "docs/markets.md": """| market | currency | VAT | note |
| --- | --- | --- | --- |
| Sweden | SEK | 25 % | since 2019 |
| Japan | JPY | 10 % | no minor unit |
| Iceland | ISK | 24 % | live since 9 March 2026 |
""",
    "setup.cfg": """[options]
python_requires = ==3.9.*
packages = billing, jobs
""",
}


class RepositoryAgent:
    """An agent whose tool calls are recorded.

    Args:
        recorder: gets its steps.
        files: text by path; its edits change them.
        rng: draws its detours and mistakes.
    """

    def __init__(
        self, recorder: SessionRecorder, files: dict[str, str], rng: random.Random
    ) -> None:
        self.recorder, self.files, self.rng = recorder, files, rng
        self.n_tests = 17

    def read_file(self, path: str, first: int = 1, last: int | None = None) -> ToolRun:
        """Read a file, or some of its lines.

        Args:
            path: the file.
            first: first line, from 1.
            last: last line; None: the end of the file.
        """
        arguments: dict[str, Any] = (
            {"path": path}
            if (first, last) == (1, None)
            else {"path": path, "first": first, "last": last}
        )
        if path not in self.files:
            return "read_file", arguments, f"no such file: {path}", True
        return "read_file", arguments, _number_lines(self.files[path], first, last), False

    def search_files(self, pattern: str, under: str = "") -> ToolRun:
        """Search the files below a folder.

        Args:
            pattern: text to search for.
            under: the folder; empty: all files.
        """
        return (
            "search",
            {"pattern": pattern, "path": under or "."},
            _search_files(self.files, pattern, under),
            False,
        )

    def edit_file(self, path: str, old: str, new: str) -> ToolRun:
        """Replace a text everywhere in a file.

        Args:
            path: the file.
            old: text to replace; it is an error where the file lacks it.
            new: its replacement.
        """
        arguments = {"path": path, "old": old, "new": new}
        if old not in self.files.get(path, ""):
            error = f"{path}: the old text was not found; read the file again"
            return "edit", arguments, error, True
        self.files[path] = self.files[path].replace(old, new)
        return "edit", arguments, f"edited {path}: {new.count(chr(10)) + 1} lines now", False

    def create_file(self, path: str, text: str) -> ToolRun:
        """Write a new file.

        Args:
            path: path of the file in the repository.
            text: its content.

        Returns:
            Name of the tool, its arguments, its result, and whether the call failed.
        """
        self.files[path] = text
        return (
            "edit",
            {"path": path, "old": "", "new": text},
            f"created {path}: {len(text.splitlines())} lines",
            False,
        )

    @staticmethod
    def run_command(command: str, output: str, *, failed: bool = False) -> ToolRun:
        """Pretend to run a command.

        Args:
            command: the command line.
            output: its output.
            failed: its exit code is not 0.
        """
        return "run", {"command": command}, output, failed

    def run_tests(self, *names: str, failure: str = "") -> ToolRun:
        """Pretend to run tests.

        Args:
            names: names of modules; none: all tests.
            failure: what pytest prints for the test that fails; empty: all pass.
        """
        paths = [f"tests/test_{n}.py" for n in names]
        n = self.n_tests if not names else 3 * len(names)
        dots, seconds = "." * n, f"{0.31 * n + self.rng.random():.2f}s"
        if not failure:
            return self.run_command(
                f"pytest -q {' '.join(paths)}".strip(), f"{dots} [100%]\n{n} passed in {seconds}"
            )
        body = (
            f"{dots[:-1]}F [100%]\n{'=' * 25} FAILURES {'=' * 25}\n{failure}\n1 failed, {n - 1} "
            f"passed in {seconds}\nexit status 1"
        )
        return self.run_command(f"pytest -q {' '.join(paths)}".strip(), body, failed=True)

    def change_module(
        self, module: str, old: str, new: str, *, reason: str, import_line: str = ""
    ) -> None:
        """Read a module, edit it, run its tests; sometimes the first attempt fails.

        Args:
            module: name of the module.
            old: text to replace.
            new: its replacement.
            reason: why, as the agent says it.
            import_line: import that the new text needs; empty: none.
        """
        path, record = f"billing/{module}.py", self.recorder.add_tool_calls
        if old not in self.files[path]:
            record(
                self.search_files(old.split("(", maxsplit=1)[0].rsplit(maxsplit=1)[-1], path),
                text=f"{path} may have it under another form.",
            )
            return
        if self.rng.random() < 0.3:
            record(self.search_files(f"{module}\\.", "tests/"), text="Who else uses it?")
        record(self.read_file(path), thinking=reason if self.rng.random() < 0.4 else "")
        if self.rng.random() < 0.3:
            record(self.edit_file(path, old.replace("    ", "  ", 1) + " ", new))
            line = next(
                i
                for i, t in enumerate(self.files[path].splitlines(), 1)
                if old.splitlines()[0] in t
            )
            record(
                self.read_file(path, max(1, line - 4), line + 6),
                text="The old text differs in its spaces; I read those lines again.",
            )
        record(self.edit_file(path, old, new))
        head = "import datetime as dt\n"
        if import_line and import_line not in self.files[path]:
            if self.rng.random() < 0.35:
                record(
                    self.run_tests(
                        module,
                        failure=f"E   NameError: name '{import_line.rsplit(maxsplit=1)[-1]}' "
                        f"is not defined ({path})",
                    )
                )
            record(
                self.edit_file(path, head, f"{head}{import_line}\n"),
                text="The import is missing." if self.rng.random() < 0.5 else "",
            )
        if self.rng.random() < 0.25:
            record(
                self.run_tests(
                    module,
                    failure=f"E   AssertionError: {module}: assert {self.rng.randrange(100, 9999)} "
                    f"== 0\ntests/test_{module}.py:{self.rng.randrange(9, 24)}: "
                    f"AssertionError",
                )
            )
            record(
                self.read_file(f"tests/test_{module}.py"),
                thinking="The test fakes the row without a currency, so it fails for another "
                "reason than my change.",
            )
            record(
                self.edit_file(
                    f"tests/test_{module}.py", 'currency="EUR"', 'currency="EUR", seller="DE"'
                )
            )
        record(self.run_tests(module))


def make_repository_files(rng: random.Random) -> dict[str, str]:
    """Return all files of the service: text by path."""
    files = dict(_FIXED_FILES)
    for name, (cls, what) in MODULES.items():
        words = {
            "name": name,
            "one": cls.lower(),
            "cls": cls,
            "what": what,
            "title": name.replace("_", " ").capitalize(),
        }
        bodies = [
            b for b in _FUNCTIONS if b is _FUNCTIONS[0] or b is _FUNCTIONS[2] or rng.random() < 0.75
        ]
        head = _MODULE_HEAD.format(
            batch=rng.choice((50, 200, 500)), grace=rng.choice((7, 14, 30)), **words
        )
        files[f"billing/{name}.py"] = head + "\n".join(b.format(**words) for b in bodies)
        files[f"tests/test_{name}.py"] = _write_test_file(name, cls.lower(), rng)
    return files


def _write_test_file(name: str, one: str, rng: random.Random) -> str:
    cents, day = rng.randrange(1000, 99999), rng.randrange(1, 28)
    return f"""from decimal import Decimal

import pytest

from billing import {name}


def test_total_is_in_minor_units(make):
    {one} = make("{one}", amounts=[Decimal("{cents / 100:.2f}")], currency="EUR")
    assert {name}.{one}_total({one}) == {cents}


def test_total_without_minor_units(make):
    {one} = make("{one}", amounts=[Decimal("{cents}")], currency="JPY")
    assert {name}.{one}_total({one}) == {cents}


def test_closing_twice_is_refused(make, db):
    {one} = make("{one}", closed_on="2026-02-{day:02d}")
    with pytest.raises(ValueError, match="was closed on"):
        {name}.close_{one}({one}.id, "again")
"""


def _number_lines(text: str, first: int = 1, last: int | None = None) -> str:
    """Return lines `first` to `last` of a file as the read tool prints them."""
    lines = text.splitlines()[first - 1 : last]
    return "\n".join(f"{n:4d}  {line}" for n, line in enumerate(lines, first))


def _search_files(files: dict[str, str], pattern: str, under: str = "") -> str:
    """Return lines that match, as `path:line: text`; at most 40."""
    matches = [
        f"{path}:{n}: {line.strip()}"
        for path, text in sorted(files.items())
        if path.startswith(under)
        for n, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]
    more = f"\n... and {len(matches) - 40} more" if len(matches) > 40 else ""
    return "\n".join(matches[:40]) + more if matches else "no matches"
