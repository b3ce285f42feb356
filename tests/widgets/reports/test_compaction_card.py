"""Cards of compactions: their figures are those of the tables, and nothing secret is on them."""

from __future__ import annotations

import re

import pytest
from _internal.redaction import secret_corpus
from builders import assistant, result, session, summarised, tool_call, usage, user
from widgets.reports.hostile_logs import SECRET, hostile, list_leaks

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import extract_items
from ctxkit.widgets.reports.compaction_card import (
    MAX_BYTES,
    MAX_NEEDED,
    REDACTED_VALUE,
    make_card,
    redact_value_for_sharing,
    write_card,
)

SAMPLES = ("billing", "research")


def test_a_compaction_that_only_prompt_sizes_show_has_a_card():
    sizes = (20_000, 90_000, 15_000, 80_000, 12_000)
    log = [(user("Go on."), assistant("ok", usage=usage(n))) for n in sizes]
    cards = [make_card(session(*log), compaction=i) for i in (0, -1)]
    assert [(c.number, c.tokens_before, c.tokens_after) for c in cards] == [
        (1, 90_000, 15_000),
        (2, 80_000, 12_000),
    ]
    assert all(c.removed_n == c.needed_n == 0 and c.cost_usd is None for c in cards)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_figures_are_those_of_the_tables(name):
    s = ck.read(ck.samples.path(name))
    rows, table = ck.frame(s, per="compaction"), ck.metrics.losses(s)
    for i, row in enumerate(rows.to_dict("records")):
        card = make_card(s, compaction=i)
        removed = table[table["compaction"] == row["compaction"]]
        needed = removed["calls_until_needed"].dropna()
        assert (card.tokens_before, card.tokens_after) == (
            row["tokens_before"],
            row["tokens_after"],
        )
        assert card.cost_usd == pytest.approx(row["cost_usd"])
        assert (card.removed_n, card.needed_n) == (len(removed), len(needed))
        assert [n.calls for n in card.needed] == sorted(needed)[:MAX_NEEDED]


def test_a_picture_has_the_colours_of_its_page_and_says_how_many_rows_it_leaves_out():
    card = make_card(ck.samples.path("billing"))
    picture = card.to_svg()
    assert "prefers-color-scheme:dark" in picture
    assert "--jp-layout-color0" in picture
    assert not re.search(r'fill="#\w+"', picture), "a colour of its own on every page"
    assert len(card.needed) < card.needed_n
    for shown in (picture, card.to_html()):
        assert f"the soonest {len(card.needed)} of {card.needed_n}" in shown
    assert "soonest 1 of" not in card._replace(needed=card.needed[:1], needed_n=1).to_svg()


def test_a_picture_has_a_line_for_each_figure_and_value_one_below_the_other():
    card = make_card(ck.samples.path("billing"))
    rows = re.findall(r'<text x="20" y="(\d+)" xml:space="preserve">(.*?)</text>', card.to_svg())
    lines = [text for _, text in rows]
    assert lines[:10] == [
        "A compaction took 83 values, 16 were needed later", "",
        "tokens before: 40,224", "tokens after: 11,045", "needed later: 19 %",
        "the soonest after: 2 calls", "price: $0.02", "",
        "Needed later, after how many calls, the soonest 12 of 16:",
        "     2  pytest -q tests/test_dunning.py",
    ]  # fmt: skip
    assert lines[20:22] == ["    28  tests/test_usage.py", ""]
    assert " ".join(lines[22:]) == " ".join(card.notes)
    assert [int(y) for y, _ in rows] == list(range(35, 35 + 22 * len(rows), 22))
    assert 'viewBox="0 0 640 616"' in card.to_svg(), "two lines of 22 for the margins"
    assert repr(card).splitlines() == [lines[0], *lines[2:7]]


def test_a_page_has_the_figures_of_the_picture():
    card = make_card(ck.samples.path("billing"))
    page = card.to_html()
    assert re.findall("<h2>(.*?)</h2>", page) == [
        "Needed later, after how many calls, the soonest 12 of 16", "What went", "What this means",
    ]  # fmt: skip
    assert re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page) == list(card.facts)
    heads = re.findall(r'<th scope="col"( class="n")?>(.*?)</th>', page)
    assert [(text, bool(number)) for number, text in heads] == [
        ("value", False), ("kind", False), ("needed after (calls)", True), ("fate", False),
        ("kind", False), ("values", True),
    ]  # fmt: skip
    cells = re.findall("<td[^>]*>(.*?)</td>", page)
    assert cells[1:3] == ["command", "2"]
    assert [tuple(pair) for pair in zip(cells[48::2], cells[49::2], strict=True)] == [
        (family, f"{n:,}") for family, n in card.removed_by_family.items()
    ]
    assert sum(card.removed_by_family.values()) == 83


def test_a_card_is_small_and_has_no_script_of_the_log():
    for name in SAMPLES:
        card = make_card(ck.samples.path(name))
        assert len(card.to_html().encode()) <= MAX_BYTES
        assert len(card.to_svg().encode()) <= MAX_BYTES
    wide = make_card(talk(" ".join(f"src/{i}/{'x' * 60}/{'y' * 60}.py" for i in range(300))))
    assert wide.needed_n > 200
    assert len(wide.to_html().encode()) <= MAX_BYTES
    assert len(wide.to_svg().encode()) <= MAX_BYTES


def test_hostile_text_stays_text():
    card = make_card(hostile())
    assert list_leaks(card.to_svg(), html=True) == []
    assert list_leaks(repr(card)) == []


def secretive():
    """A session whose compaction takes secrets that are used again."""
    said = (
        f"Look at /home/ada.lovelace/shop/keys/{SECRET}.txt, write to ada@example.org about"
        " https://x.example/a?token=" + SECRET + " and src/money.py; password: hunter2-and-more-9\n"
        "id 0123456789abcdef0123456789abcdef"
    )
    return talk(said)


def talk(said):
    """A session in which the same is said before and after a compaction."""
    calls = [assistant("", tool_call(path="src/money.py"), usage=usage(500), time=1.0)]
    before = [user(said), calls[0], result(said, calls[0])]
    again = assistant(said, tool_call(path="src/money.py"), usage=usage(300), time=3.0)
    return session(*before, summarised(before), user("Go on"), again, result(said, again))


def test_no_secret_is_on_a_card():
    s = secretive()
    card = make_card(s)
    assert card.needed_n > 1
    assert any("money.py" in i.text for i in card.needed)
    for page in (card.to_html(), card.to_svg(), repr(card)):
        for secret in (SECRET, "hunter2", "ada.lovelace", "ada@example.org", "0123456789abcdef01"):
            assert secret not in page


def test_a_short_key_is_hidden_where_its_message_has_it_in_no_such_form():
    key = secret_corpus.prefixed(2)[0][1].split()[2]
    assert len(key) == 20
    assert redact_value_for_sharing(key, "") == REDACTED_VALUE


@pytest.mark.parametrize("make", [secret_corpus.prefixed, secret_corpus.beside])
def test_no_value_of_the_corpus_shows_a_secret(make):
    rows = make(2)  # keys beside a name have 22 characters: too short for long ids
    leaks = [
        (kind, item.text)
        for kind, text, secret in rows
        for item in extract_items(user(text))
        # some families of values are in lower case
        if secret.lower() in redact_value_for_sharing(item.text, text).lower()
    ]
    assert leaks == []
    card = make_card(talk("\n".join([*(text for _, text, _ in rows), "in src/money.py"])))
    assert card.needed_n > 1
    pages = (card.to_html() + card.to_svg()).lower()
    assert not [secret for _, _, secret in rows if secret.lower() in pages]


def test_a_part_of_a_secret_is_hidden_by_what_stands_around_it():
    assert (
        redact_value_for_sharing("hunter2-and-more-9", "password: hunter2-and-more-9")
        == REDACTED_VALUE
    )
    assert redact_value_for_sharing("src/a.py", "see src/a.py") == "src/a.py"
    assert redact_value_for_sharing("/Users/ada/src/a.py", "") == "~/src/a.py"
    assert redact_value_for_sharing("C:\\Users\\ada\\a.py", "") == "~\\a.py"


def test_a_card_is_written_as_html_or_svg_and_nothing_else(tmp_path):
    page = write_card(ck.read(ck.samples.path("billing")), tmp_path / "card.html")
    assert "Content-Security-Policy" in page.read_text()
    assert (
        write_card(ck.read(ck.samples.path("billing")), tmp_path / "c.svg").read_text()[:4]
        == "<svg"
    )
    with pytest.raises(BadArguments, match=r"\.html or \.svg"):
        write_card(ck.read(ck.samples.path("billing")), tmp_path / "c.png")


def test_a_session_without_such_a_compaction_has_no_card():
    with pytest.raises(BadArguments, match="has no compaction"):
        make_card(session(user("x"), assistant("y")))
    s = ck.read(ck.samples.path("billing"))
    assert len(s.edits) == 2
    for number in (2, -3):
        with pytest.raises(BadArguments, match=f"2 compactions, so .* no card of number {number}"):
            make_card(s, compaction=number)
    assert make_card(s, compaction=1).number == make_card(s, compaction=-1).number == 2
