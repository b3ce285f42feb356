"""How the reader of `ctxkit.course.pair` was trained and examined; needs PyTorch."""
