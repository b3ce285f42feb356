"""The generator of sessions like the sample `billing`: `make_session(seed)`."""
