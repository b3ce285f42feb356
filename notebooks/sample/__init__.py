"""The story behind the sample session: a made-up repository, what is asked of the agent, what it does."""
