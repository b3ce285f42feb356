"""One task, a small model trained for it from random weights, and two recorded runs of it."""
