"""``make reference``: the pages of the manifests and of the commands are what the code says, in plain words."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tools import cli_reference, reference
from tools.house import BANNED
from txlog.config.cluster import TxLogCluster

WORDS_MAX = 25
PAGES = reference.pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_committed_page_is_what_the_code_says(path: Path) -> None:
    """``make reference`` writes it."""
    assert path.read_text() == PAGES[path]


def test_every_field_and_every_option_has_a_meaning() -> None:
    assert [where for where, meaning in reference.meanings().items() if not meaning] == []


def test_meanings_are_short_sentences() -> None:
    long = {
        where: sentence
        for where, meaning in reference.meanings().items()
        for sentence in re.split(r"(?<=[.!?])\s+", meaning)
        if len(sentence.split()) > WORDS_MAX
    }
    assert not long


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_page_uses_the_words_of_the_glossary(path: Path) -> None:
    assert BANNED.findall(PAGES[path]) == []


def test_every_kind_and_every_command_has_a_section() -> None:
    fields, commands = PAGES.values()
    for definition in reference.DEFINITIONS:
        assert f"\n## {definition.kind}\n" in fields
    for app, name in cli_reference.APPLICATIONS:
        for entry in cli_reference.entries(app, name):
            assert f"\n{'###' if entry.usage else '##'} {entry.path}\n" in commands


def test_the_example_is_a_manifest() -> None:
    manifest: dict[str, Any] = YAML(typ="safe").load(reference.EXAMPLE)
    assert TxLogCluster.model_validate(manifest).spec.data_center == "uk"
