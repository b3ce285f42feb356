"""Names that a summary must keep, and the audit that asks for them."""

import time

import pytest

from ctxkit.policies.texts import summary_prompts_and_audits as ids


def test_whole_paths_are_found_and_the_inner_part_only_as_tyrum_does():
    text = "see src/routes/api.ts and look in /etc/hosts"
    assert {"src/routes/api.ts", "/etc/hosts"} <= set(ids.find_identifiers(text))
    inner = ids.find_identifiers(text, inner_paths=True)
    assert {"/routes/api.ts", "api.ts", "/hosts"} <= set(inner)
    assert "src/routes/api.ts" not in inner


def test_kinds_of_names():
    text = "`git push` https://a.io/x?y=1 deadbeef MAX_TOKENS"
    assert ids.find_identifiers(text)[:4] == (
        "git push",
        "https://a.io/x?y=1",
        "deadbeef",
        "MAX_TOKENS",
    )


def test_an_audit_never_asks_for_a_key():
    assert ids.select_identifiers_to_audit(["sk-12345678abcdef at localhost:8080"]) == (
        "localhost:8080",
    )


def test_only_the_last_ten_texts_are_asked_for():
    assert ids.select_identifiers_to_audit(["/old/path/x", *[""] * 10]) == ()


def test_hashes_are_compared_without_case_and_paths_with_it():
    assert ids.find_lost_identifiers(["DEADBEEF01", "/Src/App"], "deadbeef01 /src/app") == (
        "/Src/App",
    )


def test_an_audit_names_all_that_is_missing():
    why = ids.audit_summary(
        "## A\nnothing",
        sections=["## A", "## B"],
        identifiers=list("wxyz"),
        request="rewrite the parser module",
    )
    assert why == (
        "missing_section:## B",
        "missing_identifiers:w,x,y",
        "latest_user_ask_not_reflected",
    )


def test_a_heading_inside_a_sentence_is_no_section():
    assert ids.audit_summary("as in ## A above", sections=["## A"]) == ("missing_section:## A",)


def test_names_are_asked_for_only_when_strict():
    assert ids.audit_summary("x", identifiers=["/a/b/c"], strict=False) == ()


@pytest.mark.parametrize(
    ("ask", "said", "good"),
    [
        ("", "", True),
        ("fix it", "x", False),
        ("fix parser bug", "parser bug", True),
        ("fix parser bug", "bug", False),
    ],
)
def test_the_last_request_is_looked_for(ask, said, good):
    assert ids.reflects_request(ask, said) is good


@pytest.mark.parametrize(
    "evil",
    ["a-" * 50_000, "/a" * 50_000, "a." * 50_000, "`" * 50_000, "C:\\" * 30_000, "a" * 100_000],
)
def test_hostile_text_costs_no_more_than_its_length(evil):
    start = time.thread_time()
    ids.find_identifiers(evil)
    ids.select_identifiers_to_audit([evil])
    assert time.thread_time() - start < 5  # a quadratic pattern takes minutes
