"""Commands declared once, for two command lines: argparse in the one file, which has no library, and typer in the
package. A command is a function whose parameters are annotated with :class:`Argument` or :class:`Option`, or with a
dataclass of such fields: options that several commands share."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

Command = Callable[..., None]
Tree = Mapping[str, "Command | Group"]


@dataclass(frozen=True)
class Argument:
    """A positional argument; optional where the parameter has a default, one or more where it is a list."""

    help: str
    metavar: str | None = None
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class Option:
    """An option. ``names``: by default ``--`` and the parameter's name. ``min``, ``max``: bounds of a number."""

    help: str
    names: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class Group:
    """Commands below one word."""

    help: str
    commands: Tree


@dataclass(frozen=True)
class Declared:
    """One parameter of a command. ``kind``: str, int, float, bool or Path; ``many``: it may be given several times."""

    name: str
    declaration: Argument | Option
    kind: Any
    many: bool
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether the command cannot do without it."""
        return self.default is inspect.Parameter.empty

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names of an option, such as ``-n`` and ``--namespace``."""
        assert isinstance(self.declaration, Option)
        return self.declaration.names or (f"--{self.name.rstrip('_').replace('_', '-')}",)


def declared(command: Command) -> Iterator[Declared]:
    """The parameters of a command, in their order; in place of a dataclass, its fields."""
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        yield from _declared(parameter.name, hints[parameter.name], parameter.default)


def _declared(name: str, hint: Any, default: Any) -> Iterator[Declared]:
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        for each in dataclasses.fields(hint):
            yield from _declared(each.name, hints[each.name], each.default)
        return
    kind, declaration = get_args(hint)
    inner = [each for each in get_args(kind) if each is not types.NoneType]
    if get_origin(kind) in (types.UnionType, Union):
        kind = inner[0]
    many = get_origin(kind) is list
    yield Declared(name, declaration, get_args(kind)[0] if many else kind, many, default)


def call(command: Command, given: Mapping[str, Any]) -> None:
    """Run a command with the values of what it declares, by name."""
    hints = get_type_hints(command, include_extras=True)
    command(**{name: _value(name, hints[name], given) for name in inspect.signature(command).parameters})


def _value(name: str, hint: Any, given: Mapping[str, Any]) -> Any:
    if not dataclasses.is_dataclass(hint):
        return given[name]
    hints = get_type_hints(hint, include_extras=True)
    values = {each.name: _value(each.name, hints[each.name], given) for each in dataclasses.fields(hint)}
    return hint(**values)  # type: ignore[operator]


def run_arguments(program: str, about: str, commands: Tree, arguments: Sequence[str]) -> None:
    """Run the command that the arguments name. Wrong usage exits with 2, help with 0."""
    parser = argparse.ArgumentParser(prog=program, description=about, allow_abbrev=False)
    _add_commands(parser, commands)
    given = vars(parser.parse_args(arguments))
    chosen = given.pop("command_to_run", None)
    if chosen is None:
        given["parser_of_group"].print_help()
        sys.exit(2)
    given.pop("parser_of_group", None)
    call(chosen, given)


def print_answer(as_json: bool, value: object, text: str) -> None:
    """Print the result of a command, as JSON or in words."""
    print(json.dumps(value, indent=2) if as_json else text)


def confirm(yes: bool, question: str) -> None:
    """Ask on the terminal, unless ``yes``; anything but yes exits with 1, as does a terminal that is none."""
    if yes:
        return
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip().lower()
    if answer not in ("y", "yes"):
        print("Aborted.", file=sys.stderr)
        sys.exit(1)


def _add_commands(parser: argparse.ArgumentParser, commands: Tree) -> None:
    parser.set_defaults(parser_of_group=parser)
    below = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, command in commands.items():
        about = command.help if isinstance(command, Group) else inspect.getdoc(command) or ""
        made = below.add_parser(name, help=about.partition("\n")[0], description=about, allow_abbrev=False)
        if isinstance(command, Group):
            _add_commands(made, command.commands)
            continue
        made.set_defaults(command_to_run=command)
        for each in declared(command):
            _add_parameter(made, each)


def _add_parameter(parser: argparse.ArgumentParser, each: Declared) -> None:
    settings: dict[str, Any] = {"help": each.declaration.help}
    if not each.is_required:
        settings["default"] = each.default
    if each.kind is bool:
        settings["action"] = "store_true"
    else:
        settings["type"] = _bounded(each)
        settings["metavar"] = getattr(each.declaration, "metavar", None) or each.name.rstrip("_").upper()
    if each.many and isinstance(each.declaration, Argument):
        settings["nargs"] = "+"
    elif each.many:
        settings["action"] = "append"
    if isinstance(each.declaration, Argument):
        if not each.is_required:
            settings["nargs"] = "?"
        parser.add_argument(each.name, **settings)
    else:
        parser.add_argument(*each.option_names, dest=each.name, required=each.is_required, **settings)


def _bounded(each: Declared) -> Callable[[str], Any]:
    low, high = each.declaration.min, each.declaration.max

    def read(text: str) -> Any:
        value = each.kind(text)
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            bounds = f"at least {low:g}" if high is None else f"{low or 0:g} to {high:g}"
            raise argparse.ArgumentTypeError(f"{text} is out of bounds; expected {bounds}")
        return value

    read.__name__ = each.kind.__name__  # argparse names it in its message
    return read
