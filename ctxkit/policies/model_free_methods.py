"""Names of the methods whose texts no model writes; a module that imports nothing."""

FUNCTION_METHOD = "function"
"""Method of an edit whose text a plain function wrote: it costs nothing that is known."""
INTENT_METHOD = "intents"
"""Method of a summary that lists what the user asked for."""
EVIDENCE_METHOD = "evidence"
"""Method of a summary that lists what tools returned."""
MODEL_FREE_METHODS = frozenset(
    {
        INTENT_METHOD,
        EVIDENCE_METHOD,
        FUNCTION_METHOD,
        "intent",
        "lossless",
        "digest",
        "tombstones",
        "superseded",
    }
)
"""Methods whose texts no model writes: policies that work them out from the record, plain functions
and fuseraft's own words in its logs. Any other summary of a log is billed as a model's.
"""
