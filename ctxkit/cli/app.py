"""The command group: each command is imported when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from ctxkit._internal.distribution_version_and_conflicts import DISTRIBUTION

COMMAND_MODULES = {
    "when": "limits_idle_when_card_commands",
    "list": "list_report_spend_watch_commands",
    "report": "list_report_spend_watch_commands",
    "spend": "list_report_spend_watch_commands",
    "idle": "limits_idle_when_card_commands",
    "limits": "limits_idle_when_card_commands",
    "card": "limits_idle_when_card_commands",
    "rules": "user_rules_and_exam_commands",
    "compare": "compare_sweep_advise_gate_commands",
    "sweep": "compare_sweep_advise_gate_commands",
    "advise": "compare_sweep_advise_gate_commands",
    "forecasts": "convert_keep_forecasts_commands",
    "convert": "convert_keep_forecasts_commands",
    "watch": "list_report_spend_watch_commands",
    "keep": "convert_keep_forecasts_commands",
    "exam": "user_rules_and_exam_commands",
    "gate": "compare_sweep_advise_gate_commands",
    "demo": "demo",
    "doctor": "doctor",
    "completion": "doctor",
}
"""The module of each command, which has it as `<name>_`."""


class PipeClosed(Exception):
    """The reader of the output has closed the pipe; click would turn this into exit code 1."""


class LazyGroup(click.Group):
    """A group whose commands are imported one by one."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and write out all that it printed before returning.

        Raises:
            PipeClosed: the reader of its output closed the pipe.
        """
        try:
            done = super().invoke(ctx)
            # a closed pipe shows only when the buffer is written: it must happen inside of `try`
            sys.stdout.flush()
        except BrokenPipeError:
            raise PipeClosed from None
        return done

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names."""
        return list(COMMAND_MODULES)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """Return a command by its name."""
        if cmd_name not in COMMAND_MODULES:
            return None
        module = import_module(f"ctxkit.cli.{COMMAND_MODULES[cmd_name]}")
        command: Any = getattr(module, f"{cmd_name}_")
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names; a slip is answered with the nearest."""
        from ctxkit.errors import did_you_mean

        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}.{did_you_mean(args[0], COMMAND_MODULES)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(package_name=DISTRIBUTION, prog_name="ctxkit")
@click.pass_context
def app(context: click.Context) -> None:
    """Say when agents' sessions should compact, what they cost, and what filled their windows.

    Without a command: the answers for the newest session of this machine. A SESSION is a path, an
    id (or its first characters), a title, or `last`.
    """
    if context.invoked_subcommand is None:
        from ctxkit.cli.limits_idle_when_card_commands import print_newest_session_advice

        print_newest_session_advice()
