"""``docs/reference/cli.md``: every command of the typer applications, as its docstring and its options say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

import typer

from kubectl_txlog import plugin
from txlog.cli import main as txlog_main

NOTE: Final = "`make reference` writes this page from the code."

APPLICATIONS: Final = ((txlog_main.app, "txlog"), (plugin.app, "kubectl txlog"))
"""The programs of ``cli.md``."""

COMMANDS_INTRO: Final = f"""\
# CLI

Every command of `txlog` and of its kubectl plug-in. {NOTE}

`-h` or `--help` after a command shows the same text.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused, not reachable, or a difference was found |
| 2 | wrong usage |
| 4 | `txlog synchro`: the quorum of a rule is not here |
| 130 | interrupted with Ctrl-C |

With `users` in the manifest, commands show the token in the file of `TXLOG_TOKEN_FILE`:
[Secure a cluster](../how-to/secure.md).
"""


def table_cell(text: str) -> str:
    """The text as a cell of a Markdown table."""
    return text.replace("|", "\\|")


def number_range(least: int | None, most: int | None) -> str:
    """The range in words; either bound may be missing."""
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"at least {least}" if most is None else f"at most {most}"


class Parameter(NamedTuple):
    """One argument or option of a command."""

    name: str
    value: str
    default: str
    meaning: str


class Entry(NamedTuple):
    """One command, or one group of them (``usage`` is empty)."""

    path: str
    usage: str
    text: str
    arguments: list[Parameter]
    options: list[Parameter]


def entries(app: typer.Typer, name: str) -> list[Entry]:
    """All commands of an application, groups before their commands; the application is the first group."""
    return list(_entries(typer.main.get_command(app), name))


def _entries(command: Any, path: str) -> Iterator[Entry]:
    arguments = [_parameter(each) for each in command.params if each.param_type_name == "argument"]
    options = [_parameter(each) for each in command.params if each.param_type_name == "option"]
    text = "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", command.help or ""))
    inner = getattr(command, "commands", None)
    is_command = inner is None or command.invoke_without_command  # a group may be a command as well
    yield Entry(path, _usage(command, path) if is_command else "", text, arguments, options)
    if inner is not None:  # groups last: a section holds the commands of its group and nothing else
        for name, each in sorted(inner.items(), key=lambda item: hasattr(item[1], "commands")):
            if not each.hidden:
                yield from _entries(each, f"{path} {name}")


def _usage(command: Any, path: str) -> str:
    words = [path]
    optional = False
    for each in command.params:
        if each.param_type_name == "option":
            optional = optional or not each.required
            words += [f"{each.opts[0]} {_metavar(each)}"] if each.required else []
    words += ["[OPTIONS]"] if optional else []
    for each in command.params:
        if each.param_type_name == "argument":
            name = _metavar(each)
            words.append(name if each.required or name.startswith("[") else f"[{name}]")
    return " ".join(words)


def _metavar(parameter: Any) -> str:
    """The word for the value of an argument or an option in a usage line."""
    if parameter.metavar:
        name = str(parameter.metavar)
    elif parameter.param_type_name == "argument":
        name = str(parameter.name).upper()
    else:
        name = _plain_value(parameter).upper()
    return f"{name}..." if parameter.nargs == -1 and not name.endswith("...") else name


def _parameter(parameter: Any) -> Parameter:
    if parameter.param_type_name == "argument":
        name = f"`{_metavar(parameter)}`"
    else:
        name = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
    default = "required" if parameter.required else _shown_default(parameter)
    return Parameter(
        table_cell(name), table_cell(_value(parameter)), default, table_cell(" ".join((parameter.help or "").split()))
    )


def _value(parameter: Any) -> str:
    value = _plain_value(parameter)
    least, most = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if least is not None or most is not None:
        value += f", {number_range(least, most)}"
    if parameter.param_type_name == "option" and parameter.metavar:
        value = f"`{parameter.metavar}`"
    return f"{value}; repeatable" if get_origin(parameter.type_descriptor.annotation) is list else value


def _plain_value(parameter: Any) -> str:
    """The type of one value, or its choices."""
    annotation = parameter.type_descriptor.annotation
    kind = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{each.value}`" for each in kind)
    return {bool: "flag", str: "text", int: "integer", float: "number", Path: "path"}[kind]


def _shown_default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if value is None or isinstance(value, bool) or callable(value):
        return ""
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def common_options(found: Sequence[Entry]) -> list[Parameter]:
    """The options that at least half of the commands have."""
    commands = [each for each in found if each.usage]
    counts = Counter(option for each in commands for option in each.options)
    return [option for option, count in counts.items() if 2 * count >= len(commands)]


def commands_page() -> str:
    """``cli.md``."""
    parts = [COMMANDS_INTRO]
    details: list[str] = []
    for app, name in APPLICATIONS:
        found = entries(app, name)
        parts += [f"## Commands of {name}\n", "| command | what it does |", "|---|---|"]
        for each in found:
            if each.usage:
                parts.append(f"| [`{each.path}`](#{each.path.replace(' ', '-')}) | {table_cell(_first(each.text))} |")
        common = common_options(found)
        parts.append(f"\n### Common options of {name}\n")
        parts += _parameter_table("option", [*found[0].options, *common])
        parts.append("")
        for each in found:
            details += _entry_section(each, common, f"#common-options-of-{name.replace(' ', '-')}")
    return "\n".join((*parts, *details)).rstrip("\n") + "\n"


def _entry_section(entry: Entry, common: Sequence[Parameter], link: str) -> Iterator[str]:
    if not entry.usage:
        yield f"## {entry.path}\n\n{entry.text}\n"
        return
    yield f"### {entry.path}\n\n{entry.text}\n\n```\n{entry.usage}\n```\n"
    if entry.arguments:
        yield from _parameter_table("argument", entry.arguments)
        yield ""
    own = [each for each in entry.options if each not in common]
    if own:
        yield from _parameter_table("option", own)
        yield ""
    shared = [each.name for each in entry.options if each in common]
    if shared:
        yield f"[Common options]({link}): {', '.join(shared)}.\n"


def _parameter_table(word: str, rows: Iterable[Parameter]) -> Iterator[str]:
    yield f"| {word} | value | default | meaning |\n|---|---|---|---|"
    for row in rows:
        yield re.sub(r" {2,}", " ", f"| {row.name} | {row.value} | {row.default} | {row.meaning} |")


def _first(text: str) -> str:
    """The first sentence."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", text.partition("\n")[0])[0]
