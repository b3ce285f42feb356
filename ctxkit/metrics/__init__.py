"""Size, money, thrash and loss: pure functions over sessions, one idea a file."""
