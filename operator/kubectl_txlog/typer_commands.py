"""The declared commands as those of a typer application."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from kubectl_txlog.command_line import Argument, Command, Declared, Group, Tree, call, declared


def add_commands(app: typer.Typer, commands: Tree) -> None:
    """Add them to the application."""
    for name, command in commands.items():
        if isinstance(command, Group):
            group = typer.Typer(no_args_is_help=True, help=command.help)
            add_commands(group, command.commands)
            app.add_typer(group, name=name)
        else:
            app.command(name)(_for_typer(command))


def _for_typer(command: Command) -> Command:
    def run(**given: Any) -> None:
        call(command, given)

    shown = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=_annotation(each))
        for each in declared(command)
    ]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _annotation(each: Declared) -> Any:
    kind = list[each.kind] if each.many else each.kind  # type: ignore[name-defined]
    if each.default is None:
        kind = kind | None
    given = each.declaration
    if isinstance(given, Argument):
        argument = typer.Argument(metavar=given.metavar, help=given.help, min=given.min, max=given.max)
        return Annotated[kind, argument]
    return Annotated[kind, typer.Option(*given.names, help=given.help, min=given.min, max=given.max)]
