"""What runs the commands of pages sees what a page has wrong; and every command that a page names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from e2e.lib.documented_commands import REWRITTEN, ROOT, Bindings, Reader, blocks_of
from kubectl_txlog import plugin
from txlog.cli import main as txlog_main

PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts)
PAGE = """\
Run it:

<!-- run: until 5 -->
```
txlog status
```

The output:

1. In a list:

   ```
   ...
   uk-1  Joined
   ```

<!-- run: file data.ttl -->
```turtle
<urn:a> <urn:b> <urn:c> .
```

<!-- run: kubernetes -->
Words in between end the comment.

```
kubectl get txl
```

<!-- sh: txlog link cut uk us
txlog link heal -->
```yaml
spec: {}
```
"""


def test_a_page_is_its_blocks() -> None:
    assert [(block.line, block.kind, block.rule) for block in blocks_of(PAGE)] == [
        (4, "commands", "until 5"),
        (12, "output", ""),
        (18, "file", "file data.ttl"),
        (25, "commands", ""),
        (29, "commands", ""),
        (31, "other", ""),
    ]
    assert blocks_of(PAGE)[1].text == "...\nuk-1  Joined"
    assert blocks_of(PAGE)[4].text == "txlog link cut uk us\ntxlog link heal"


SHOWN = """\
HTTP/1.1 204 No Content
TxLog-Transaction: uk-1.2e8e97bb9982cb7c.1
TxLog-Position: 1:1:14b472e7fa56ac153b101da506224f02
"""
ANSWER = """\
HTTP/1.1 204 No Content
Date: today
TxLog-Transaction: uk-1.aaaaaaaaaaaaaaaa.7
TxLog-Position: 1:9:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
Server: txlog
"""


def test_what_differs_on_each_machine_is_the_same_wherever_a_page_repeats_it() -> None:
    found = Bindings()
    assert found.compare(SHOWN, ANSWER) is None
    command = "curl :7301/ -H 'TxLog-Min-Position: 1:1:14b472e7fa56ac153b101da506224f02'"
    assert found.apply(command) == "curl :7301/ -H 'TxLog-Min-Position: 1:9:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb'"
    assert found.compare("1  uk-1.2e8e97bb9982cb7c.1", "1  uk-1.aaaaaaaaaaaaaaaa.7") is None
    assert found.compare("1  uk-1.2e8e97bb9982cb7c.1", "1  uk-1.cccccccccccccccc.7") is not None
    assert Bindings().compare("1  uk-1.2e8e97bb9982cb7c.1", "1  uk-2.aaaaaaaaaaaaaaaa.7") is not None


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        ("a  b", "a b  "),
        ("...\nb", "a\nx\nb"),
        ("a\n...", "a\nx\nb"),
        ("TxLog-Durability: synced", "TxLog-Durability: applied"),
        ("done in 0.1 s, 12 B", "done in 27.3 s, 480 B"),
        ("at index 118, then 118", "at index 3, then 3"),
        ("ended; …/.txlog is removed", "ended; /tmp/x/.txlog is removed"),
        ("2.1.uk-1  2026-11-25 20:24:00Z", "7.2.us-1  2027-01-02 03:04:05Z"),
    ],
)
def test_an_output_is_as_shown(shown: str, output: str) -> None:
    assert Bindings().compare(shown, output) is None


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("...\nb", "a"),
        ("TxLog-Durability: synced", "TxLog-Durability: quorum"),
        ("5 quads", "6 quads"),
        ("done in 0.1 s", "done in 1 ms"),
        ("at index 118, then 118", "at index 3, then 4"),
        ("HTTP/1.1 204 No Content", "HTTP/1.1 200 OK"),
        ("uk-1  Joined", "uk-1  Suspected"),
    ],
)
def test_an_output_is_not_as_shown(shown: str, output: str) -> None:
    assert Bindings().compare(shown, output) is not None


def test_a_reader_names_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("e2e.lib.documented_commands.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- run: file data -->\n```text\nhello\n```\n"
        "```\n. ./data.sh\n```\n"
        "<!-- sh: cat data; A=kept -->\n```\nhello\n```\n"
        "<!-- sh: echo $A -->\n```\nlost\n```\n"
        "```python\nprint(1 + 1)  # 2\n```\n"
        "```\nkubectl get pods\n```\n"
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    reader = Reader(folder)
    reader.follow(page)
    assert [each.splitlines()[0] for each in reader.wrong] == [
        "page.md:5: exit code 1 in place of 0",
        "page.md:12: not in the output: lost",
        "page.md:19: needs the comment <!-- run: kubernetes -->",
    ]


def test_make_does_what_is_run_in_its_place() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"@$(BIN)/{REWRITTEN['make up']}\n" in makefile
    assert f"@$(BIN)/{REWRITTEN['make down']}\n" in makefile


# -- each command that a page names

INLINE = re.compile(r"`((?:kubectl )?txlog [^`\n]+)`")
APPLICATIONS = {"txlog": txlog_main.app, "kubectl": plugin.app}


def commands_named(page: str) -> Iterator[str]:
    yield from INLINE.findall(page)
    for block in blocks_of(page):
        if block.kind == "commands":
            lines = block.text.replace("\\\n", " ").splitlines()
            yield from (line for line in lines if line.startswith(("txlog ", "kubectl txlog ")))


@cache
def root_of(program: str) -> Any:
    """The program's group of commands; to build it takes a tenth of a second."""
    return typer.main.get_command(APPLICATIONS[program])


def unknown_words(text: str) -> list[str]:
    """Groups, commands and options of a command line that the program does not have."""
    program, *words = (
        re.split(r"[|>#]", re.sub(r"(?<=\w)\|(?=\w)", "/", text))[0].replace("[", " ").replace("]", " ").split()
    )
    at = root_of(program)
    wrong = []
    is_value = False
    for word in words[1:] if program == "kubectl" else words:
        if word.startswith("-"):
            options = {option: each for each in at.params for option in (*each.opts, *each.secondary_opts)}
            name, _, value = word.partition("=")
            found = options.get(name.rstrip(","))
            is_value = found is not None and not found.is_flag and not value
            if found is None and name.rstrip(",") not in ("--help", "-h"):
                wrong.append(word)
        elif is_value:
            is_value = False
        elif hasattr(at, "commands"):
            if word not in at.commands:  # of a group that is a command itself, its options may be the last word
                return wrong if word in ("...", "…", "OPTIONS") else [*wrong, word]
            at = at.commands[word]
    return wrong


def test_every_command_on_a_page_exists() -> None:
    wrong = {
        f"{page.relative_to(ROOT)}: {text}": words
        for page in PAGES
        for text in commands_named(page.read_text())
        if (words := unknown_words(text))
    }
    assert wrong == {}


def test_what_a_page_imports_exists() -> None:
    lines = {
        line.strip()
        for page in PAGES
        for block in blocks_of(page.read_text())
        if block.kind == "python"
        for line in block.text.splitlines()
        if re.match(r"\s*(from|import) txlog", line)
    }
    assert lines
    for line in lines:
        exec(line, {})
