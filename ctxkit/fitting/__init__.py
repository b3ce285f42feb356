"""Rules for anybody's agent loop: its messages in, what to send out."""
