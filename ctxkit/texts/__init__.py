"""What summaries are made of: lines, names and records of messages, and how texts are cut."""
