"""The command line as a module: ``python -m ctxkit``."""

from ctxkit.cli import run

if __name__ == "__main__":
    run()
