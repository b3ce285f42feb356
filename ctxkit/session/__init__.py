"""Sessions as append-only logs of frozen values: messages, edits, usage, tool calls and titles."""
