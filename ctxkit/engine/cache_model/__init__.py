"""The prompt cache, predicted: what each call of a session reads, without its recorded reads."""
