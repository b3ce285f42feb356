"""Cards of compactions: their figures are those of the tables, and nothing secret is on them."""

from __future__ import annotations

import re

import pytest
from _internal.redaction import secret_corpus
from builders import assistant, result, session, summarised, tool_call, usage, user
from widgets.reports.hostile_logs import SECRET, hostile, list_leaks
from widgets.reports.page_reading import (
    PageTable,
    list_texts,
    read_pairs,
    read_sections,
    read_table,
)

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import extract_items
from ctxkit.widgets.reports.compaction_card import (
    MAX_BYTES,
    MAX_NEEDED,
    REDACTED_VALUE,
    CompactionCard,
    RemovedItemNeededLater,
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


# -- A card that is written down here: every line of it by hand.

NOTES = [
    "Counted are paths, ids, numbers and the like that the prompt no longer showed.",
    "The summary may still say them in other words.",
    "Made by ctxkit from a log alone. Secrets, addresses and long ids are hidden.",
]
CARD = CompactionCard(
    number=2,
    tokens_before=40_500,
    tokens_after=9_000,
    cost_usd=0.25,
    removed_by_family={"path": 1_200, "<id>": 300},
    needed_n=1_125,
    needed=(
        RemovedItemNeededLater("path", "src/<a>.py", 3, "lost"),
        RemovedItemNeededLater("number", "x" * 61, 1_234, "recoverable"),
    ),
)
TITLE = "A compaction took 1,500 values, 1,125 were needed later"
FACTS = [
    ("tokens before", "40,500"),
    ("tokens after", "9,000"),
    ("needed later", "75 %"),
    ("the soonest after", "3 calls"),
    ("price", "$0.25"),
]


def test_a_picture_has_a_line_for_each_figure_each_value_and_each_note():
    picture = CARD.to_svg()
    lines = [
        TITLE,
        "",
        *(f"{name}: {value}" for name, value in FACTS),
        "",
        "Needed later, after how many calls, the soonest 2 of 1,125:",
        "     3  src/<a>.py",
        " 1,234  " + "x" * 59 + "…",
        "",
        "Counted are paths, ids, numbers and the like that the prompt no longer",
        "showed.",
        NOTES[1],
        NOTES[2],
    ]
    assert list_texts("text", picture) == lines
    places = re.findall(r'<text x="20" y="(\d+)" xml:space="preserve">', picture)
    # lines are 22 pixels apart; the first is 35 below the edge, and as much room is below the last
    assert [int(y) for y in places] == [35 + 22 * i for i in range(len(lines))]
    assert 'viewBox="0 0 640 396" role="img"' in picture
    assert '<rect width="640" height="396" rx="10"/>' in picture
    assert f'aria-label="{TITLE}"' in picture
    assert picture.startswith('<svg xmlns="http://www.w3.org/2000/svg" class="ctxkit-card"')
    assert picture.endswith("</text></g></svg>\n")
    assert CARD._repr_html_() == picture
    assert repr(CARD) == "\n".join([TITLE, *(f"{name}: {value}" for name, value in FACTS)])
    nothing = CARD._replace(needed=(), needed_n=0)
    assert "Needed later" not in nothing.to_svg()
    long = CARD._replace(removed_by_family={"path": 10**9})
    assert list_texts("text", long.to_svg())[:2] == [
        "A compaction took 1,000,000,000 values, 1,125 were needed later",
        "",
    ]


def test_a_page_of_a_card_has_the_same_figures_in_tables():
    page = CARD.to_html()
    assert list_texts("title", page) == list_texts("h1", page) == [TITLE]
    assert read_pairs(page.partition("<section>")[0]) == FACTS
    assert "newPlot" not in page.replace("Plotly.relayout", "")
    sections = read_sections(page)
    assert [*sections] == [
        "Needed later, after how many calls, the soonest 2 of 1,125",
        "What went",
        "What this means",
    ]
    needed, removed = (read_table(html) for html in list(sections.values())[:2])
    assert needed == PageTable(
        "",
        ["value", "kind", "needed after (calls)", "fate"],
        [
            ["src/<a>.py", "path", "3", "lost"],
            ["x" * 61, "number", "1,234", "recoverable"],
        ],
        ["needed after (calls)"],
    )
    assert removed == PageTable(
        "", ["kind", "values"], [["path", "1,200"], ["<id>", "300"]], ["values"]
    )
    assert list_texts("li", sections["What this means"]) == NOTES
    all_needed = CARD._replace(needed_n=2)
    assert next(iter(read_sections(all_needed.to_html()))) == "Needed later, after how many calls"


def test_what_is_not_known_is_a_dash_on_a_card():
    bare = CompactionCard(1, None, None, None, {}, 0, ())
    assert [value for _, value in bare.facts] == ["—"] * 5
    assert bare.title == "No exact value is known to have gone with this compaction"
    one = bare._replace(removed_by_family={"path": 1}, cost_usd=0.0, tokens_after=0)
    assert dict(one.facts) == {
        "tokens before": "—",
        "tokens after": "0",
        "needed later": "0 %",
        "the soonest after": "—",
        "price": "$0.00",
    }
    soon = one._replace(needed_n=1, needed=(RemovedItemNeededLater("path", "a", 1, "lost"),))
    assert dict(soon.facts)["the soonest after"] == "1 call"


def test_a_card_names_the_values_that_were_needed_soonest_and_counts_the_rest():
    first = assistant("", tool_call(path="src/m0.py"), usage=usage(5_000), time=1.0)
    words = " ".join(f"src/part{i}/m{i}.py" for i in range(14))
    before = [user(words), first, result(words, first)]
    cut = summarised(before, usage=usage(1_000, output=100), model="claude-sonnet-4-5")
    later = [
        assistant(f"src/part{i}/m{i}.py", usage=usage(300), time=3.0 + i)
        for i in reversed(range(14))
    ]
    log = [e for m in later for e in (user("Go on"), m)]
    card = make_card(session(*before, cut, *log))
    assert (card.number, card.needed_n, len(card.needed)) == (1, 14, MAX_NEEDED)
    assert MAX_NEEDED == 12
    assert [i.text for i in card.needed] == [f"src/part{i}/m{i}.py" for i in range(13, 1, -1)]
    calls = [i.calls for i in card.needed]
    assert calls == list(range(calls[0], calls[0] + 12))
    assert {i.family for i in card.needed} == {"path"}
    assert {i.fate for i in card.needed} == {"lost"}
    assert card.cost_usd == pytest.approx(0.0045)
    assert card.removed_by_family["path"] >= 14
    assert [*card.removed_by_family.values()] == sorted(
        card.removed_by_family.values(), reverse=True
    )


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        ("a" * 5 + "/" + "b" * 23, "", "a" * 5 + "/" + "b" * 23),
        ("a" * 5 + "/" + "b" * 24, "", REDACTED_VALUE),
        ("b" * 24 + "/a.py", "", "b" * 24 + "/a.py"),
        ("a. " * 40, "", ("a. " * 27)[:79] + "…"),
        ("/home/ada/x and /Users/Bo/y", "", "~/x and ~/y"),
        ("mail ada@example.org", "", REDACTED_VALUE),
        ("hunter2-and-more-9", "no such words", "hunter2-and-more-9"),
    ],
    ids=["23 letters", "24 letters", "a long folder", "81", "homes", "address", "another text"],
)
def test_a_value_is_shown_in_bounds_or_hidden(value, text, shown):
    assert redact_value_for_sharing(value, text) == shown


def test_a_file_of_a_card_is_a_page_or_a_picture_by_its_ending(tmp_path, monkeypatch):
    s = session(*talk("src/a.py").log)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, start in (
        ("a.htm", "<!doctype html>"),
        ("b.HTML", "<!doctype html>"),
        ("c.SVG", "<svg "),
    ):
        path = write_card(s, f"~/{name}", compaction=0)
        assert path == tmp_path / name
        assert path.read_text(encoding="utf-8").startswith(start)
    assert (tmp_path / "c.SVG").read_text(encoding="utf-8") == make_card(s, compaction=0).to_svg()
    of_billing = tmp_path / "d.svg"
    write_card(ck.samples.path("billing"), of_billing)
    assert of_billing.read_text(encoding="utf-8") == make_card(ck.samples.path("billing")).to_svg()
    of_billing.unlink()
    with pytest.raises(BadArguments, match=r"^A card is a page or a picture: .* not 'c\.png'\.$"):
        write_card(s, tmp_path / "c.png")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.htm", "b.HTML", "c.SVG"]
    with pytest.raises(BadArguments, match="has 1 compaction, so there is no card of number 1"):
        write_card(s, tmp_path / "d.svg", compaction=1)
