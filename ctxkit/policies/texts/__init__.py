"""Text tools of policies: message content, tool actions, line index, extracts, prompts."""
