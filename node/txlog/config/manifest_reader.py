"""Reads manifests: YAML files, parsed with line numbers, so that every error has its location.

All errors of all files are reported at once, as one :class:`BadManifest`.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from txlog.config.cluster import API_VERSION, CLUSTER_KIND, TxLogCluster
from txlog.model.errors import BadInput

FILE_BYTES_MAX = 1 << 20
VALUES_MAX = 20_000
DEPTH_MAX = 30
"""Bounds the size to which aliases can expand a small file."""

TYPE_DESCRIPTIONS = {
    "missing": "this field",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of fields to values",
    "model_attributes_type": "a mapping of fields to values",
    "too_short": "at least one element",
    "string_too_short": "a text that is not empty",
}

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True)
class ManifestProblem:
    """One error: ``line`` counts from 1. ``field`` is a path such as ``spec.peers[0].masters`` (empty: the whole
    document). ``message`` contains the value found and what is expected."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class BadManifest(BadInput):
    """``problems``: all errors, in the order of files and lines."""

    def __init__(self, problems: Sequence[ManifestProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.file, p.line)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class ClusterManifest:
    """One data centre's manifest: ``file`` and ``line`` (from 1) are the start of its document."""

    cluster: TxLogCluster
    file: str
    line: int

    @property
    def data_center(self) -> str:
        """Name of its data centre."""
        return self.cluster.data_center


@dataclass(frozen=True)
class _ParsedManifest:
    """A manifest with its source tree, which knows the lines."""

    manifest: ClusterManifest
    tree: CommentedMap

    def problem(self, field: FieldPath, message: str) -> ManifestProblem:
        return ManifestProblem(self.manifest.file, _line_of(self.tree, field), _format_path(field), message)


def load_manifests(paths: Path | str | Iterable[Path | str]) -> list[ClusterManifest]:
    """The manifests of these files, and of the ``*.yaml`` and ``*.yml`` in these folders, in the order of their
    data centres in ``peers``.

    Not every data centre of ``peers`` needs a manifest here: on Kubernetes each knows only its own.
    Raises :class:`BadManifest` with every error that was found.
    """
    problems: list[ManifestProblem] = []
    files: list[Path] = []
    read: list[_ParsedManifest] = []
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise _bad_file("-", "no manifest given; expected at least one file or folder")
    for path in map(Path, given):
        with _collected(problems):
            files += _files_at(path)
    for file in dict.fromkeys(files):
        with _collected(problems):
            for tree in _parse_documents(str(file), _read_text(file)):
                with _collected(problems):
                    read.append(_validate(str(file), tree))
    problems += _check_between_manifests(read)
    if problems:
        raise BadManifest(problems)
    order = [peer.name for peer in read[0].manifest.cluster.spec.peers]
    return sorted((each.manifest for each in read), key=lambda manifest: order.index(manifest.data_center))


@contextmanager
def _collected(problems: list[ManifestProblem]) -> Iterator[None]:
    """Adds what the block raises to ``problems``."""
    try:
        yield
    except BadManifest as wrong:
        problems += wrong.problems


def _bad_file(file: str, message: str, line: int = 0) -> BadManifest:
    return BadManifest([ManifestProblem(file, line, "", message)])


def _files_at(path: Path) -> list[Path]:
    if not path.exists():
        raise _bad_file(str(path), "no such file or folder; expected a manifest or a folder of them")
    if not path.is_dir():
        return [path]
    inside = sorted(f for f in path.iterdir() if f.suffix in (".yaml", ".yml") and f.is_file())
    if not inside:
        raise _bad_file(str(path), "no *.yaml file in this folder; expected manifests")
    return inside


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _bad_file(str(path), f"cannot be read: {error.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise _bad_file(str(path), f"{len(raw)} bytes; expected a manifest of at most {FILE_BYTES_MAX}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _bad_file(str(path), "not text in UTF-8; expected YAML", line) from None


def _parse_documents(file: str, text: str) -> Iterator[Any]:
    """The non-empty documents; a syntax error ends the file."""
    empty = True
    try:
        for tree in YAML(typ="rt").load_all(io.StringIO(text)):
            if tree is not None:
                empty = False
                yield tree
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _bad_file(file, _describe_syntax_error(error, text, line), line) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _bad_file(file, f"not YAML: the character {error.character!r} may not be in it", line) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise _bad_file(file, f"not YAML: {str(error).splitlines()[0]}", 1) from None
    if empty:
        raise _bad_file(file, f"holds no document; expected a {CLUSTER_KIND} ({API_VERSION})", 1)


def _describe_syntax_error(error: MarkedYAMLError, text: str, line: int) -> str:
    lines = text.splitlines()
    here = lines[line - 1] if line <= len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())] or "'\\t'" in str(error.problem):
        return "a tab; expected spaces (YAML allows no tabs for indentation)"
    if "duplicate key" in str(error.problem):
        key = str(error.problem).split('"')[1:2]
        return f"the field {key[0] if key else ''} is there twice; expected once"
    context = f" ({error.context})" if error.context else ""
    return f"not YAML: {error.problem}{context}"


class _TooLarge(Exception):
    pass


def _to_plain(tree: Any, depth: int, count: list[int]) -> Any:
    """The tree as plain Python values, as pydantic needs them."""
    count[0] += 1
    if depth > DEPTH_MAX or count[0] > VALUES_MAX:
        raise _TooLarge
    if isinstance(tree, Mapping):
        return {str(key): _to_plain(value, depth + 1, count) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_to_plain(value, depth + 1, count) for value in tree]
    if isinstance(tree, TaggedScalar):
        return {"!": str(tree.value)}  # no field takes a tagged value
    for plain in (bool, int, float, str):
        if isinstance(tree, plain):
            return plain(tree)
    return tree


def _validate(file: str, tree: Any) -> _ParsedManifest:
    if not isinstance(tree, CommentedMap):
        line = tree.lc.line + 1 if isinstance(tree, CommentedSeq) else 1
        said = f"expected a {CLUSTER_KIND}: a mapping with apiVersion, kind, metadata and spec"
        raise _bad_file(file, said, line)
    line = tree.lc.line + 1
    try:
        plain = _to_plain(tree, 0, [0])
    except _TooLarge:
        raise _bad_file(file, "too deep or too large once its aliases are followed", line) from None
    _check_kind(file, tree, plain)
    try:
        cluster = TxLogCluster.model_validate(plain)
    except ValidationError as error:
        raise BadManifest([_to_problem(file, tree, plain, detail) for detail in error.errors()]) from None
    return _ParsedManifest(ClusterManifest(cluster, file, line), tree)


def _check_kind(file: str, tree: CommentedMap, plain: dict[str, Any]) -> None:
    """A document of another kind: one clear error instead of one for each of its fields."""
    found = []
    for field, expected in (("apiVersion", API_VERSION), ("kind", CLUSTER_KIND)):
        value = plain.get(field)
        if value != expected:
            said = f"is {_quote(value)}" if field in plain else "is missing"
            found.append(ManifestProblem(file, _line_of(tree, (field,)), field, f"{said}; expected {expected}"))
    if found:
        raise BadManifest(found)


def _to_problem(file: str, tree: CommentedMap, plain: Any, detail: ErrorDetails) -> ManifestProblem:
    field: FieldPath = detail["loc"]
    context: dict[str, Any] = detail.get("ctx", {})
    kind = detail["type"]
    if kind == "expected":
        field += tuple(context.get("at", ()))
        value = _value_at(plain, field)
        got = f"is {_quote(value)}; " if isinstance(value, str | int | float | bool) else ""
        message = f"{got}expected {context['what']}"
    elif kind == "missing":
        message = f"is missing; expected {_hint(field)}"
    elif kind == "extra_forbidden":
        message = _describe_unknown_field(field)
    else:
        message = f"is {_quote(detail['input'])}; expected {_expectation(kind, context, detail['msg'], field)}"
    return ManifestProblem(file, _line_of(tree, field), _format_path(field), message)


def _expectation(kind: str, context: dict[str, Any], said: str, field: FieldPath) -> str:
    if kind == "value_error":
        return str(context.get("error", said))
    if kind in ("literal_error", "enum"):
        return f"{context['expected']}".replace("'", "")
    if kind == "string_pattern_mismatch":
        return _hint(field, context["pattern"])
    bounds = {"greater_than_equal": "ge", "less_than_equal": "le", "greater_than": "gt", "less_than": "lt"}
    if kind in bounds:
        word = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}[bounds[kind]]
        return f"a number of {word} {context[bounds[kind]]}"
    return TYPE_DESCRIPTIONS.get(kind, said[:1].lower() + said[1:])


_HINTS = {
    "name": "a name of lower-case letters, digits and hyphens (at most 50), such as uk",
    "namespace": "a name of lower-case letters, digits and hyphens",
    "dataCenter": "the name of one of the peers, such as uk",
    "repository": "letters, digits, - and _",
    "peers": "the list of all data centres, this one included",
    "masters": "the number of masters of that data centre",
    "address": "host or host:port, such as txlog-uk-{index}.example.net",
    "splitRecovery": "None, Simple or Smart",
    "path": "the whole path of a folder, such as /var/backups/txlog",
    "url": "an address that begins with http:// or https://",
    "endpoint": "an address that begins with http:// or https://",
    "bucket": "the name of a bucket",
    "metadata": "a mapping with name",
    "spec": "a mapping with dataCenter and peers",
    "target": "where backups go: {s3: {bucket: …}} or {folder: {path: …}}",
    "s3": "{bucket: …}",
    "secretRef": "{name: …}",
}


def _hint(field: FieldPath, pattern: str = "") -> str:
    last = next((part for part in reversed(field) if isinstance(part, str)), "")
    return _HINTS.get(last, f"a text like {pattern}" if pattern else "a value")


def _describe_unknown_field(field: FieldPath) -> str:
    model = _model_at(field[:-1])
    known = [str(f.alias or name) for name, f in model.model_fields.items()] if model else []
    close = difflib.get_close_matches(str(field[-1]), known, n=1)
    if close:
        return f"no such field; expected {close[0]}?"
    return f"no such field; expected one of {', '.join(known)}" if known else "no such field"


def _model_at(field: FieldPath) -> type[BaseModel] | None:
    """The model that describes the value at ``field``."""
    model: type[BaseModel] | None = TxLogCluster
    for part in field:
        if isinstance(part, int) or model is None:
            continue
        info = next((f for name, f in model.model_fields.items() if part in (f.alias, name)), None)
        model = _model_in(info.annotation) if info else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model), None)


def _value_at(plain: Any, field: FieldPath) -> Any:
    for part in field:
        try:
            plain = plain[part]
        except (KeyError, IndexError, TypeError):
            return None
    return plain


def _line_of(tree: Any, field: FieldPath) -> int:
    """The line (from 1) of the deepest existing part of ``field``."""
    line: int = tree.lc.line
    for part in field:
        if isinstance(tree, CommentedMap) and part in tree:
            line = tree.lc.key(part)[0]
        elif isinstance(tree, CommentedSeq) and isinstance(part, int) and part < len(tree):
            line = tree.lc.item(part)[0]
        else:
            break
        tree = tree[part]
    return line + 1


def _format_path(field: FieldPath) -> str:
    text = ""
    for part in field:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _quote(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return f'"{text[:60]}…"' if len(text) > 60 else f'"{text}"' if isinstance(value, str) else text


def _check_between_manifests(read: Sequence[_ParsedManifest]) -> list[ManifestProblem]:
    """Errors that only appear between several manifests."""
    if not read:
        return []
    problems = []
    first = read[0]
    mine = first.manifest.cluster
    places: dict[str, _ParsedManifest] = {}
    for each in read:
        other = each.manifest.cluster
        there = places.setdefault(other.data_center, each)
        if there is not each:
            at = f"{there.manifest.file}:{there.manifest.line}"
            problems.append(
                each.problem(("spec", "dataCenter"), f'is "{other.data_center}" as in {at}; expected one manifest each')
            )
        if other.spec.peers != mine.spec.peers:
            problems.append(each.problem(*_describe_peer_difference(each, first)))
        for field, value, expected in (
            ("repository", other.repository, mine.repository),
            ("splitMode", other.spec.split_mode, mine.spec.split_mode),
        ):
            if value != expected:
                said = f'is "{value}"; expected "{expected}", the same as in {first.manifest.file}'
                problems.append(each.problem(("spec", field), said))
    return problems


def _describe_peer_difference(each: _ParsedManifest, first: _ParsedManifest) -> tuple[FieldPath, str]:
    peers, expected = each.manifest.cluster.spec.peers, first.manifest.cluster.spec.peers
    where = f"the same list in every data centre, as in {first.manifest.file} (order = precedence)"
    for at, (peer, other) in enumerate(zip(peers, expected, strict=False)):
        if peer.name != other.name:
            return ("spec", "peers", at), f'is "{peer.name}"; expected "{other.name}": {where}'
        for name in type(peer).model_fields:
            if getattr(peer, name) != getattr(other, name):
                field = type(peer).model_fields[name].alias or name
                said = f"is {_quote(getattr(peer, name))}; expected {_quote(getattr(other, name))}"
                return ("spec", "peers", at, field), f"{said}: {where}"
    return ("spec", "peers"), f"has {len(peers)} data centres; expected {len(expected)}: {where}"


__all__ = ["BadManifest", "ClusterManifest", "ManifestProblem", "TxLogCluster", "load_manifests"]
