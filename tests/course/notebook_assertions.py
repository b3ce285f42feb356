"""Sentences of notebooks about their results, and the code that must hold after the last cell."""

SETUP = {
    "04": """
calls = {name: done.session.calls for name, done in {"again": again, "kept": kept}.items()}
last = {name: [c for c in of if c.turn == of[-1].turn] for name, of in calls.items()}
told = ck.report(kept.session, call=10)
""",
    "08": "from ctxkit.course.fuseraft_token_snapshot_generator import TEAMS",
    "10": """
sent = costs["cost_usd"].drop("time, at the top")
(no, pasted), (one, _), (two, _), (pruned, _) = (
    ways(*n)["cost_usd"] for n in ((0,), (1,), (2,), (2, True))
)
(tokens, _), (fewer, _) = (ways(*n)["peak_tokens"] for n in ((1,), (2, True)))
""",
    "11": """
views = priced.drop("shared")
usages = [c.message.usage for c in reviewer.shared.calls]
rules = {view.name: view.rules("Reviewer") for view in parse_views("views")}
where = {name: ck.replay(reviewer.shared, each).sent(call) for name, each in rules.items()}
where = {
    name: {i.message.kind or i.message.role for i in sent if ERROR_CODE in i.message.text}
    for name, sent in where.items()
}
""",
    "a1": """
savings = costs.loc["none"] - costs.loc["fuseraft"]
off = (costs.loc["as recorded"] / paid - 1).abs()
""",
    "a2": """
climb = against.loc["summed up again"]
late = told[(told["compaction"] == 1) & told["meaning_kept"] & ~told["values_kept"].fillna(True)]
audited = audits(session)
""",
}
NOTEBOOK_CLAIMS = {
    "04": {
        "Nearly all of it are results of tools": (
            'told.groups()["tool results"] > 0.8 * told.prompt_tokens'
        ),
        "It reads both files once more": (
            'sum(len(c.message.tool_calls) for c in last["again"]) == 2'
        ),
        "Those it still sees, so it answers at once. (Nothing is `cached`": (
            'len(last["kept"]) == 1 and not last["kept"][0].message.usage.cache_read_tokens'
        ),
    },
    "08": {
        "The same prompt of 40,000 tokens in all three": 'all(sum(n for kind, n in row.items() if kind != "reply") == 40_000 for row in rows.values())',
        "a hundred sessions of three teams": 'len(TEAMS) == 3 and turns["session"].nunique() == 100',
        "One that is above that when its turn is over": (
            'set(turns["cutover_at"].dropna()) == {100_000}'
        ),
        "somebody's disk was full, and the last line is not finished": (
            'len(broken) == 2 and "not finished" in broken["why"].iloc[-1]'
        ),
        "left in, they would pull every mean down": (
            'log["turn_input_tokens"].mean() < turns["turn_input_tokens"].mean()'
        ),
        "A compaction resets all agents of its team, so it has a row for each": (
            'len(resets[resets["kind"] == "compaction"]) > 710'
        ),
        "At 100,000 it counts some more than the log's 710": (
            'int(turns["compaction_occurred"].sum()) == 710 < compactions_at(100_000) < 750'
        ),
        "the tokenizer counts a fifth too low, and some 1,300 tokens are in no text": (
            "round(1 - 1 / unit, 1) == 0.2 and round(missing, -2) == 1_300 "
            'and round(ck.report(billing).groups()["not in the log"], -1) == 1_260'
        ),
        "The third bill is met within one per cent; by the first bill alone it would be 17 % too high": (
            "abs((unit * counted[2] + missing) / billed[2] - 1) < 0.01 "
            "and round(billed[0] / counted[0] * counted[2] / billed[2], 2) == 1.17"
        ),
        "A unit of 1 means that a part is missing and nothing is miscounted; a missing part of 0, that the unit alone is wrong": (
            "unit_and_missing([78, 60], [97.5, 79.5]) == (1, 19.5) and unit_and_missing([78, 60], [97.5, 75]) == (1.25, 0)"
        ),
    },
    "10": {
        "Where the base rate is low, most marks are wrong": "marks(5_000, 1 / 1_000, 0.95, 0.02)[1] < 0.1 * marks(5_000, 1 / 1_000, 0.95, 0.02)[0]",
        "All in front grows by every note, in dollars and in the window; an index too, by a line; a search does not": (
            '(few := remember(10))["search"] == (many := remember(1_000))["search"] and many["all in front"] - few["all in front"] > 10 * (many["index"] - few["index"]) > 0'
        ),
        "you have a reference of three thousand tokens": (
            "2_800 < default_counter().message(reading(0)[1]) < 3_500"
        ),
        "The rules have 3,000 characters, the guide 12,000": (
            '2_900 < len(Path("AGENTS.md").read_text()) < 3_200 and '
            "11_500 < len(guide.read_text()) < 12_500"
        ),
        "the agent has six tools": "len(session.tools) == 6",
        "Eight turns make some fifty calls": (
            "len(session.calls) == 48 and session.calls[-1].turn == 7"
        ),
        "The time is a dozen tokens": 'costs.loc["time", "tokens"] == 12',
        "The rules are read fifty times, and cost a cent and a half": (
            'costs.loc["project", "cost_usd"].round(3) == 0.015'
        ),
        "costs next to nothing where it stands": 'costs.loc["time", "cost_usd"] < 0.001',
        "At the top it would cost five times as much as all other pieces together": (
            '5 < costs.loc["time, at the top", "cost_usd"] / sent.sum() < 6'
        ),
        "Where nobody reads the guide, the list wins": "no < pasted",
        "One read in the first turn costs what pasting costs": "abs(one / pasted - 1) < 0.1",
        "Each further read is *another copy* that all later calls carry": "two > one",
        "keeps the prompt as short as with one": "abs(fewer / tokens - 1) < 0.05",
        "it gets back less than half": "0 < (two - pruned) / (two - one) < 0.5",
    },
    "11": {
        "At first the subagent is dearer": "both_ways(0)[1] > both_ways(0)[0] and both_ways(5)[1] < both_ways(5)[0]",
        "*Without a cache* it is cheaper at once and by far more": (
            "both_ways(0, True)[1] < both_ways(0, True)[0] and (of := both_ways(40, True))[0] - of[1] > 10 * (both_ways(40)[0] - both_ways(40)[1])"
        ),
        "(third figure) make the search look free": "both_ways(0)[2] < 0.05 * both_ways(0)[1]",
        "Four agents write a small library": "len(made.account) == 4",
        "the Reviewer finds three times that it is missing": (
            'made.moves["keyword"].eq("ONCE MORE").sum() == 3'
        ),
        "Most of a shared prompt is read from the cache": (
            "sum(u.cache_read_tokens for u in usages) > 0.9 * sum(u.prompt_tokens for u in usages)"
        ),
        "Why dollars fall less than tokens": (
            '(views["cost_usd"] / shared["cost_usd"] > views["token_share"]).all()'
        ),
        "`artifacts` sends the fewest tokens, and is not the cheapest": (
            'views["token_share"].idxmin() == "artifacts" != views["cost_usd"].idxmin()'
        ),
        "Here a fresh context costs half as much, and three sevenths of what was needed": (
            'whole.loc["fresh", "cost_usd"] / shared["cost_usd"] < 0.52 and '
            'round(7 * whole.loc["fresh", "needed_later_loss"], 6) == 3'
        ),
        "`TextOnly` costs a cent more than fresh and loses one seventh": (
            'round(whole.loc["text only", "cost_usd"] - whole.loc["fresh", "cost_usd"], 2) == 0.01 '
            'and round(7 * whole.loc["text only", "needed_later_loss"], 6) == 1'
        ),
        "`TextOnly` keeps the words, and so it keeps the rule": '"heard" in where["text only"]',
        "Who hears nobody has its own earlier words for it, and what it reads in the files": (
            'where["fresh"] == {"assistant", "tool"}'
        ),
        "who is shown three replies has the files alone": 'where["last 3 replies"] == {"tool"}',
        "A shared team is the dearest: each of its four agents has what the others said written": (
            'alone < shared["cost_usd"] == whole["cost_usd"].drop("recorded").max() and before < written / 4'
        ),
        "Views that forget are cheaper than one agent that sees all": 'views["cost_usd"].max() < alone',
    },
    "a1": {
        "With one it is dearer than not clearing at all, and the batch wins": (
            "clearing(1) > clearing(0) > clearing(10) and clearing(1, w=3, r=3) < clearing(10, w=3, r=3) < clearing(0, w=3, r=3)"
        ),
        "If the sum *doubles* each time, every call sends the same": "sums(100, 45_000, 0) == 2 * sums(50, 45_000, 0)",
        "If it goes towards *four times*, nothing is taken away": "3.5 < sums(200, 10_000, 1_000) / sums(100, 10_000, 1_000) < 4",
        "With a cache the share that is saved is smaller, and the dollars are a tenth": (
            'less["cached"] / split.loc["cached", "one"] < less["no cache"] / split.loc["no cache", "one"] and round(less["no cache"] / less["cached"], -1) == 10'
        ),
        "*A cache that is never read is dearer than none:*": 'price_pauses(10, 6)["let it die"] > price_pauses(10, 6)["no cache"]',
        "The *median* is a usual call, and forgets the few large results": "free / median(grew) > 3 * free / mean(grew) and low < drawn[4] < high",
        "should be written *before* the pause": 'ways["compacted in the evening"] < ways["compact in the morning"] < ways["go on"]',
        "it does for any reads at all, made-up ones too": (
            'checked["closure_error"].abs().max() < 0.001'
        ),
        "The others see at once that something is wrong. The split call by call sees it most clearly": (
            'checked["read_split_error"].iloc[1:].min() > 10 * checked["read_split_error"].iloc[0]'
        ),
        "dollars hardly change where the same reads are given to other calls": (
            'abs(checked["error"].iloc[1]) < 0.1 < abs(checked["error"].iloc[2])'
        ),
        "a model that knows only how long a cache lives is too cheap": (
            'costs.loc["as recorded", "pauses only"] < 0.9 * paid'
        ),
        "With all of them carried over the books close": 'off["misses carried"] < 0.001',
        "The size of a saving, in dollars, does not survive": "savings.max() > 1.2 * savings.min()",
        "both agree on the sign": (
            '(gain["headroom, after a pause"] > 0).all() and (gain["Pichay"] > 0).all()'
        ),
        "whoever adds up the tops has 11 cents here and paid 90": (
            'round(rows["sealed"]["all dollars"], 2) == 0.11 and '
            'round(rows["compacted"]["all dollars"], 2) == 0.9'
        ),
        "the second line: 11 cents is a lower bound": 'pd.isna(rows["sealed"]["its dollars"])',
        "That is the *in dollars alone* of notebook 05": "round(exact) == advice.cheapest",
    },
    "a2": {
        "The sum of both ways is the most that can be saved, the larger of the two the least": (
            "max(saved(older), saved(large)) <= saved(older | large) <= saved(older) + saved(large) and len(older & large) > 0"
        ),
        "A rate that rises says that facts are unequal": "rates == sorted(rates) and facts[0] * rates[0] ** 4 < facts[-1] / 2",
        "Such a judge makes the worse summary look better than it is. The difference grows when it is put right, but *its error grows by the same factor*": (
            "(y - f) / (t - f) < y and (x - y) / (t - f) > x - y and half > x - y"
        ),
        "After the second compaction something is still said of the importer's queue": (
            'len(late) == 1 and "queue" in late["fact"].iloc[0]'
        ),
        "Summed up again, a sixth is lost at first and half in the end": (
            'round(1 / climb["after 1"]) == 6 and round(climb["at the end"], 1) == 0.5'
        ),
        "it falls for a while where something was read again": 'climb["after 3"] < climb["after 2"]',
        "Merging in levels puts that off": (
            'against.loc["in levels", "after 3"] == climb["after 1"] < climb["after 3"]'
        ),
        "Carried on, nothing more is lost, but the summaries fill the prompt: it compacts 37 times": (
            '(of := against.loc["carried on"])["after 1"] == of["at the end"] '
            'and of["compactions"] == 37 and against["dollars"].idxmax() == "carried on"'
        ),
        "The record is bad at once, for it holds no sentence, and hardly moves": (
            '(of := against.loc["record of the log"])["after 1"] > 3 * climb["after 1"] '
            'and of["at the end"] < of["after 1"] + 0.05'
        ),
        "With a summary behind it a third is lost, and little more later": (
            'round(1 / (of := against.loc["record and summary"])["after 1"]) == 3 '
            'and of["at the end"] < of["after 1"] + 0.05'
        ),
        "The last one nobody said: refused. The second is the contrary": (
            'list(invented) == claimed[-1:] and "no keyset paging" in " ".join(source)'
        ),
        "0 to 1": '0 <= ck.score(session)["summary_recall"] <= 1',
        "it is the cheapest in each column, but nearly all of what `incident` and `research` needed": (
            '(of := pd.DataFrame(columns)).xs("dollars", axis=1, level=1).idxmin().eq("file, on arrival").all() '
            'and of.loc["file, on arrival", [("incident", "lost"), ("research", "lost")]].min() > 0.9'
        ),
        "loses names: most of what was needed on `billing` and `research`": (
            'of.loc["summary", [("billing", "lost"), ("research", "lost")]].min() > 0.5'
        ),
        "five of ten against none are hardly chance (0.033, below 0.05), and four are suggestive, not shown (0.087, though 0.043 in one direction)": (
            "[round(chance(n, 0)[1], 3) for n in (5, 4)] == [0.033, 0.087] and round(chance(4, 0)[0], 3) == 0.043"
        ),
        "So are nine of 20 against three of 20 (0.082)": "round(chance(9, 3, 20)[1], 3) == 0.082",
        "One run of each says nothing at all": "chance(1, 0, 1) == (0.5, 1)",
        "as the p under *Chance* does": "mcnemar([True] * 3, [False] * 3).p == 2 * 0.5**3",
        "here the summary says the task in its own words": 'audited["task_lost"].all()',
    },
    "a3": {
        "the chance of as many or more on one side, times two": "sign_test(5, 6) == 2 * 7 / 64 and sign_test(9, 10) < 0.05 < sign_test(8, 10)",
        "Whoever always states the base rate is calibrated and of no use": (
            'sum(stated["always the base rate"]) == sum(came) and len(set(stated["always the base rate"])) == 1'
        ),
        "Rows are equal to the token": (
            'pooled["prompt_tokens"].tolist() == '
            'runs[runs["session"] == sessions[0].id]["prompt_tokens"].tolist()'
        ),
        "Started again, it goes on where it stopped": "len(again) == len(grid)",
        "six sessions show a dollar and hardly less; a saving of 5 cents is not to be seen": (
            "sessions_needed(1, d) == len(by_rules) == 6 and sessions_needed(0.5, d) == 24 and sessions_needed(0.05, d) > 2_000"
        ),
        "Six of ten may well be chance; from about sixteen sessions on 55 % is clearly below 80 %": (
            "at_most(6, 10) > 0.1 and at_most(9, 16) < 0.05"
        ),
    },
}


def write_asserts(number: str) -> str:
    """Return the code that checks all claims of a notebook."""
    claims = NOTEBOOK_CLAIMS.get(number, {})
    asserts = "\n".join(f"assert {code}, {text!r}" for text, code in claims.items())
    return f"{SETUP.get(number, '')}\n{asserts}"
