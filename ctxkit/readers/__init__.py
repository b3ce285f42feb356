"""Files to sessions: one file a format, and a catalogue that sniffs by content."""
