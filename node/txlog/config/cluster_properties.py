"""``cluster.properties``: the whole start configuration of one master, in place of a manifest. File and names are those
of the predecessor (``node-id``, ``master-url``, ``peer.<n>.id``, ``peer.<n>.url``, ``split-recovery``: camel case
mapped to hyphens). New properties follow the same pattern. docs/reference/configuration.md lists them.

Changes while the master runs (settings, masters that come and go) are written back; comments and order stay.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from txlog.config.preferences import (
    CHOICES,
    KEYS,
    Preferences,
    PropertyLine,
    config_fields,
    format_preferences,
    parse_property_lines,
    property_name,
    validate_preferences,
)
from txlog.config.process_config import NodeConfig, PeerConfig, PipelineConfig, WorkerConfig
from txlog.config.units import Engine, duration_within, parse_duration, parse_quantity, size_at_least
from txlog.model.configuration import Configuration, Master
from txlog.model.errors import BadInput
from txlog.model.ids import NODE_ID

BYTES_MAX: Final = 1 << 20
GRAPHDB_ONLY_NAMES: Final = frozenset(
    {
        "auto-replication",
        "net-speed-bits-per-sec",
        "full-replication-time-factor",
        "min-time-to-consider-full-replication-s",
        "protect-single-worker",
        "master-replication-port",
    }
)
"""Names of the predecessor that have no meaning here: ignored, and reported."""
_FIXED_VALUES: Final = {"mode": "normal", "read-only": "false"}
"""Names that this file cannot set, with the only value that is accepted because it changes nothing."""
_REPOSITORY: Final = re.compile(r"/repositories/([A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)/?$")
_NUMBERED_NAME: Final = re.compile(r"(peer|worker)\.([0-9]{1,4})\.([a-z-]+)")
_NUMBERED_NAMES: Final = {
    "peer": ("id", "url", "data-center", "vote-weight", "peer-port"),
    "worker": ("id", "url", "engine"),
}
_NODE_NUMBER: Final = re.compile(r"^(.+)-([0-9]+)$")
_LOOPBACK: Final = "127.0.0.1"


class BadProperties(BadInput):
    """All errors of the file, one line each: ``FILE:LINE: NAME: the value found and what is expected``."""


@dataclass(frozen=True)
class ClusterProperties:
    """``node``: the master. ``url``: its URL for clients, without the repository. ``local_masters``: URLs of the
    masters of its data centre, itself first. ``remote_masters``: those of each other data centre. ``runs_pipeline``:
    whether this machine runs the Spark application and duties of its data centre. ``ignored_names``: names without a
    meaning here."""

    node: NodeConfig
    url: str
    local_masters: list[str]
    remote_masters: list[list[str]]
    runs_pipeline: bool
    ignored_names: list[str]

    def pipeline_config(self, scratch: Path) -> PipelineConfig | None:
        """The Spark application of its data centre; None where the file names no stores, or assigns the application to
        another machine."""
        if not self.runs_pipeline:
            return None
        workers = list(self.node.workers)
        return PipelineConfig(
            data_center=self.node.data_center, masters=self.local_masters, workers=workers, scratch_folder=scratch
        )


def is_properties(path: Path) -> bool:
    """Whether the file's name ends in ``.properties``."""
    return path.suffix == ".properties"


def read_cluster_properties(path: Path) -> ClusterProperties:
    """Parses the file. :class:`BadProperties` with every error."""
    return _PropertiesParser(
        str(path), parse_property_lines(_read_text(path)), path.absolute().parent, path.absolute()
    ).parse()


def _read_text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as wrong:
        raise BadProperties(f"{path}: cannot be read: {wrong.strerror}") from None
    if len(raw) > BYTES_MAX:
        raise BadProperties(f"{path}: above {BYTES_MAX} bytes; expected a cluster.properties file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = raw.count(b"\n", 0, wrong.start) + 1
        raise BadProperties(f"{path}:{line}: not text in UTF-8; expected a cluster.properties file") from None


def canonical_name(name: str) -> str:
    """The hyphenated spelling of a name, also of an attribute's (``NodeID``, ``maxPeerLag``); else the name itself."""
    return _SPELLINGS.get(_fold(name), name)


def _fold(name: str) -> str:
    return name.replace("-", "").lower()


# Parsers of values


def _parse_node_id(value: str) -> str:
    if not NODE_ID.fullmatch(value):
        raise ValueError("small letters, digits and hyphens (at most 63), such as uk-1")
    return value


def _integer_parser(least: int, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(value)

    return read


def _choice_parser(*words: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        found = next((word for word in words if word.lower() == value.lower()), None)
        if found is None:
            raise ValueError(f"{', '.join(words[:-1])} or {words[-1]}")
        return found

    return read


def _parse_bool(value: str) -> bool:
    return _choice_parser("true", "false")(value) == "true"


def _duration_parser(least: str, most: str) -> Callable[[str], int]:
    check = duration_within(least, most)
    return lambda value: check(parse_duration(value))


def _parse_size(value: str) -> int:
    return size_at_least("64Mi")(parse_quantity(value if not value.isdigit() else "without a unit"))


def _parse_text(value: str) -> str:
    return value


def _parse_listen_address(value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not colon or not re.fullmatch(r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+", host):
        raise ValueError("HOST:PORT, such as 0.0.0.0:7300")
    return host.strip("[]"), _integer_parser(1, 65535)(port)


def _parse_sources(value: str) -> list[str]:
    if not all(re.fullmatch(r"https?://[^/\s?#@]+/[^\s#]*", each) for each in value.split()):
        raise ValueError("URLs with spaces between them, such as https://data.example.net/dumps/")
    return value.split()


def _parse_networks(value: str) -> list[str]:
    try:
        return [str(ipaddress.ip_network(each)) for each in value.split()]
    except ValueError:
        raise ValueError("networks with spaces between them, such as 10.1.0.0/16") from None


def _parse_seconds(value: str) -> float:
    return _duration_parser("100ms", "10m")(value) / 1000


_PORT: Final = _integer_parser(1, 65535)
_VOTES: Final = _integer_parser(0, 1000)
_ENGINE: Final = _choice_parser(*get_args(Engine))
_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "storage-size": ("journal_bytes_max", _parse_size),
    "log-keep": ("log_keep_ms", _duration_parser("0", "520w")),
    "log-max-size": ("log_bytes_max", _parse_size),
    "peer-port": ("peer_port", _PORT),
    "split-mode": ("split_mode", _choice_parser("Continue", "Majority")),
    "key-retention": ("key_retention_ms", _duration_parser("1s", "520w")),
    "durability": ("durability", _choice_parser("accepted", "synced", "quorum", "applied", "applied-all")),
    "write-timeout": ("write_timeout_s", _parse_seconds),
    "non-deterministic-updates": ("non_deterministic_updates", _choice_parser("effects", "refuse")),
    "updates-without-graph": ("updates_without_graph", _choice_parser("default", "all")),
    "mixed-engines": ("mixed_engines", _parse_bool),
}
"""By name: the field of :class:`NodeConfig`, and the parser of a value (``ValueError`` contains what is expected)."""
_PATH_FIELDS: Final[Mapping[str, str]] = {
    "journal-folder": "journal_folder",
    "peer-token-file": "peer_token_file",
    "users-file": "users_file",
    "own-token-file": "own_token_file",
    "tls-folder": "tls_folder",
    "peer-tls-folder": "peer_tls_folder",
}
_OTHER_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "node-id": _parse_node_id,
    "master-url": _parse_text,
    "data-center": _parse_node_id,
    "vote-weight": _VOTES,
    "listen-address": _parse_listen_address,
    "run-pipeline": _parse_bool,
}
_LIST_NAMES: Final = ("load-sources", "load-networks")
"""Their values are lists, separated by spaces."""
NAMES: Final[tuple[str, ...]] = (*_OTHER_PARSERS, *map(property_name, KEYS), *_FIELDS, *_PATH_FIELDS, *_LIST_NAMES)
"""All names without a number."""
_SPELLINGS: Final = {_fold(name): name for name in (*NAMES, *GRAPHDB_ONLY_NAMES, *_FIXED_VALUES)}
_DEFAULT_PATHS: Final = {"journal-folder": "journal", "peer-token-file": "peer-token"}


@dataclass
class _PropertiesParser:
    """Parses one file: the values and the errors so far."""

    file: str
    lines: list[PropertyLine]
    folder: Path
    path: Path
    errors: list[tuple[int, str]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    line_of_name: dict[str, int] = field(default_factory=dict)
    ignored_names: list[str] = field(default_factory=list)

    def add_error(self, line: int, name: str, said: str) -> None:
        place = f"{self.file}:{line}" if line else self.file
        self.errors.append((line, f"{place}: {name}: {said}"))

    def parse(self) -> ClusterProperties:
        for line in self.lines:
            self._parse_line(line)
        preferences = self._parse_preferences()
        found = self._build(preferences) if not self.errors else None
        if found is None:
            said = [text for _, text in sorted(self.errors)]
            raise BadProperties("\n".join(dict.fromkeys(said)))
        return found

    def _parse_line(self, line: PropertyLine) -> None:
        name = canonical_name(line.name)
        numbered = _NUMBERED_NAME.fullmatch(name)
        if name in self.line_of_name:
            self.add_error(
                line.first_line, line.name, f"is there twice, as in line {self.line_of_name[name]}; expected once"
            )
            return
        self.line_of_name[name] = line.first_line
        if name in GRAPHDB_ONLY_NAMES:
            self.ignored_names.append(line.name)
            return
        read = self._parser_for(name)
        if numbered is not None and numbered[3] not in _NUMBERED_NAMES[numbered[1]]:
            there = ", ".join(f"{numbered[1]}.<n>.{each}" for each in _NUMBERED_NAMES[numbered[1]])
            self.add_error(line.first_line, line.name[:80], f"no such property; expected one of {there}")
        elif read is None:
            close = difflib.get_close_matches(name, (*NAMES, "peer.1.id", "peer.1.url", "worker.1.url"), n=1)
            self.add_error(
                line.first_line, line.name[:80], f"no such property{f'; expected {close[0]}?' if close else ''}"
            )
        elif not line.value:
            self.add_error(line.first_line, line.name, f"has no value; expected {line.name}=VALUE")
        else:
            try:
                self.values[name] = read(line.value)
            except ValueError as wrong:
                self.add_error(line.first_line, line.name, f'is "{line.value[:60]}"; expected {wrong}')

    def _parser_for(self, name: str) -> Callable[[str], Any] | None:
        numbered = _NUMBERED_NAME.fullmatch(name)
        if numbered is not None:
            kinds = {"id": _parse_node_id, "data-center": _parse_node_id, "vote-weight": _VOTES, "peer-port": _PORT}
            return {**kinds, "url": _parse_text, "engine": _ENGINE}.get(numbered[3])
        if name in _FIXED_VALUES:
            return self._fixed_value_parser(name)
        if name in _FIELDS:
            return _FIELDS[name][1]
        if name in _LIST_NAMES:
            return _parse_sources if name == "load-sources" else _parse_networks
        if name in _PATH_FIELDS:
            return lambda value: self.folder / value
        if name in map(property_name, KEYS):
            return _parse_text
        return _OTHER_PARSERS.get(name)

    def _fixed_value_parser(self, name: str) -> Callable[[str], str]:
        def read(value: str) -> str:
            if value.lower() != _FIXED_VALUES[name]:
                raise ValueError(
                    f"{_FIXED_VALUES[name]}, or no such line: it is set while the master runs (txlog peer mute)"
                )
            return value

        return read

    def _parse_preferences(self) -> Preferences | None:
        told = {key: self.values[property_name(key)] for key in KEYS if property_name(key) in self.values}
        try:
            return Preferences.model_validate(told)
        except ValidationError as errors:
            for error in errors.errors():
                context = error.get("ctx", {})
                key = str((*error["loc"], *context.get("at", ()))[0])
                what = context.get("what") or context.get("error") or error["msg"]
                what = CHOICES.get(key, what)
                name = property_name(key)
                got = f'is "{str(told[key])[:60]}"; ' if key in told else ""
                self.add_error(self.line_of_name.get(name, 0), name, f"{got}expected {what}")
            return None

    # Checks across lines

    def _parse_url(self, name: str, repository: str | None) -> tuple[str, str, str] | None:
        """The URL without its repository, the repository, and the host; otherwise adds an error and returns None."""
        value: str = self.values[name]
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        found = _REPOSITORY.search(parts.path)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or port == 0 or found is None:
            what = "an RDF4J repository's URL, such as http://uk-1.example.net:7300/repositories/demo"
            self.add_error(self.line_of_name[name], name, f'is "{value[:100]}"; expected {what}')
            return None
        if repository is not None and found[1] != repository:
            said = f'is of the repository "{found[1]}"; expected "{repository}", the same as in master-url'
            self.add_error(self.line_of_name[name], name, said)
            return None
        base = parts.path[: found.start()].removesuffix("/rdf4j-server").rstrip("/")
        return f"{parts.scheme}://{parts.netloc}{base}", found[1], parts.hostname

    def _add_missing(self, name: str, example: str) -> None:
        self.add_error(0, name, f"is missing; expected {name}={example}")

    def _data_center(self, node: str, name: str) -> str | None:
        """The given value, else the node id without its number."""
        told: str | None = self.values.get(name)
        own = _NODE_NUMBER.match(node)
        if told is None and own is None:
            at = self.line_of_name.get(name.replace("data-center", "id"), self.line_of_name.get("node-id", 0))
            self.add_error(at, name, f"is missing; expected {name}=NAME, since {node} ends in no number as uk-1 does")
        return told or (own[1] if own is not None else None)

    def _numbers(self, kind: str) -> list[int]:
        found = (match for name in self.line_of_name if (match := _NUMBERED_NAME.fullmatch(name)) and match[1] == kind)
        return sorted({int(match[2]) for match in found})

    def _build(self, preferences: Preferences | None) -> ClusterProperties | None:
        for name, example in (("node-id", "uk-1"), ("master-url", "http://uk-1.example.net:7300/repositories/demo")):
            if name not in self.values:
                self._add_missing(name, example)
        if self.errors or preferences is None:
            return None
        values, node = self.values, str(self.values["node-id"])
        mine, center = self._parse_url("master-url", None), self._data_center(node, "data-center")
        if mine is None or center is None:
            return None
        url, repository, host = mine
        secure = "peer-tls-folder" in values
        own = PeerConfig(node=node, data_center=center, url=url, weight=values.get("vote-weight", 1))
        peers, urls = self._parse_peers(own, repository, values.get("peer-port") if secure else None)
        workers = self._parse_workers(center)
        scheme = urlsplit(url).scheme
        if "tls-folder" in values and scheme != "https":
            self.add_error(
                self.line_of_name["master-url"], "master-url", "is http; expected https, since there is a tls-folder"
            )
        if scheme == "https" and not {"tls-folder", "listen-address"} & set(values):
            said = "is https; expected a tls-folder, or the listen-address behind whoever ends TLS"
            self.add_error(self.line_of_name["master-url"], "master-url", said)
        if self.errors:
            return None
        port = urlsplit(url).port or (443 if scheme == "https" else 80)
        listen = values.get("listen-address", (host, port))
        fields: dict[str, Any] = {entry[0]: values[name] for name, entry in _FIELDS.items() if name in values}
        fields |= {own: values.get(name) for name, own in _PATH_FIELDS.items() if name in values}
        for name, default in _DEFAULT_PATHS.items():
            fields.setdefault(_PATH_FIELDS[name], self.folder / default)
        fields |= config_fields(preferences)
        fields |= {"node": node, "data_center": center, "repository": repository, "properties_file": self.path}
        fields |= {"host": listen[0], "port": listen[1], "peers": peers, "workers": workers}
        if "load-sources" in values:
            fields["load"] = {"sources": values["load-sources"], "networks": values.get("load-networks", [])}
        elif "load-networks" in values:
            self.add_error(self.line_of_name["load-networks"], "load-networks", "is of no use without load-sources")
            return None
        config = self._build_node_config(fields)
        if config is None:
            return None
        first = next(peer.node for peer in peers if peer.data_center == center) == node
        same = [url, *(urls[peer.node] for peer in peers if peer.data_center == center and peer.node != node)]
        others = dict.fromkeys(peer.data_center for peer in peers if peer.data_center != center)
        return ClusterProperties(
            node=config,
            url=url,
            local_masters=same,
            remote_masters=[[urls[peer.node] for peer in peers if peer.data_center == other] for other in others],
            runs_pipeline=bool(workers) and values.get("run-pipeline", first),
            ignored_names=self.ignored_names,
        )

    def _build_node_config(self, fields: dict[str, Any]) -> NodeConfig | None:
        by_field = {
            **{own: name for name, (own, _) in _FIELDS.items()},
            **{own: name for name, own in _PATH_FIELDS.items()},
        }
        try:
            return NodeConfig.model_validate(fields)
        except ValidationError as errors:
            for error in errors.errors():
                own = str(error["loc"][0]) if error["loc"] else ""
                name = by_field.get(own, property_name(own).replace("_", "-"))
                said = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda field: field[0].replace("_", "-"), error["msg"])
                self.add_error(self.line_of_name.get(name, 0), name or "the file", said)
            return None

    def _parse_peers(
        self, own: PeerConfig, repository: str, peer_port: int | None
    ) -> tuple[list[PeerConfig], dict[str, str]]:
        """All masters, this one included, in the order of data centre and number. Each file names only the others, and
        precedence must be the same everywhere. Also returns each master's URL for clients."""
        found, urls = {own.node: own}, {own.node: own.url}
        for number in self._numbers("peer"):
            name = f"peer.{number}"
            lacks = [part for part in ("id", "url") if f"{name}.{part}" not in self.values]
            if lacks:
                line = min(at for each, at in self.line_of_name.items() if each.startswith(f"{name}."))
                self.add_error(line, f"{name}.{lacks[0]}", f"is missing; expected {name}.{lacks[0]}=VALUE")
                continue
            node = str(self.values[f"{name}.id"])
            told, center = self._parse_url(f"{name}.url", repository), self._data_center(node, f"{name}.data-center")
            if told is None or center is None:
                continue
            if node in found:
                self.add_error(
                    self.line_of_name[f"{name}.id"], f"{name}.id", f"{node} is there twice; every master has its own id"
                )
                continue
            if told[0] in urls.values():
                self.add_error(
                    self.line_of_name[f"{name}.url"],
                    f"{name}.url",
                    f"{told[0]} is there twice; every master has its own",
                )
                continue
            urls[node] = told[0]
            port = self.values.get(f"{name}.peer-port", peer_port)
            host = f"[{told[2]}]" if ":" in told[2] else told[2]
            reached = told[0] if port is None else f"http://{host}:{port}"
            weight = self.values.get(f"{name}.vote-weight", 1)
            found[node] = PeerConfig(node=node, data_center=center, url=reached, weight=weight)
        return sorted(found.values(), key=_precedence_key), urls

    def _parse_workers(self, center: str) -> list[WorkerConfig]:
        found: list[WorkerConfig] = []
        for number in self._numbers("worker"):
            name = f"worker.{number}"
            line = min(at for each, at in self.line_of_name.items() if each.startswith(f"{name}."))
            url: str | None = self.values.get(f"{name}.url")
            if url is None:
                self.add_error(line, f"{name}.url", f"is missing; expected {name}.url=URL")
                continue
            if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", url):
                self.add_error(
                    self.line_of_name[f"{name}.url"], f"{name}.url", f'is "{url[:60]}"; expected a URL of a store'
                )
                continue
            called = self.values.get(f"{name}.id", f"{center}-worker-{number}")
            url, engine = url.rstrip("/"), self.values.get(f"{name}.engine", "oxigraph")
            if any(url == other.url or called == other.name for other in found):
                self.add_error(line, name, f"{called} or {url} is there twice; every store has its own")
                continue
            if engine == "virtuoso" and self.values.get("mixed-engines"):
                self.add_error(
                    self.line_of_name["mixed-engines"],
                    "mixed-engines",
                    "a virtuoso is not mixed; expected no such line",
                )
                continue
            if engine == "virtuoso" and self.values.get("non-deterministic-updates") != "refuse":
                self.add_error(line, name, "a virtuoso takes no effects; expected non-deterministic-updates=refuse")
                continue
            found.append(WorkerConfig(name=called, url=url, engine=engine))
        return found


def _precedence_key(peer: PeerConfig) -> tuple[str, str, int, str]:
    own = _NODE_NUMBER.match(peer.node)
    return (peer.data_center, own[1] if own else peer.node, int(own[2]) if own else 0, peer.node)


# Writing back

_WRITE_LOCK: Final = threading.Lock()


def rewrite_lines(path: Path, changes: Callable[[list[PropertyLine]], Mapping[str, str | None]]) -> bool:
    """Applies ``changes`` to the lines, by name: a new value, or None to delete the line. Atomic, and durable on
    return. Returns whether anything changed. ``OSError``, :class:`BadProperties`."""
    with _WRITE_LOCK:
        text = _read_text(path)
        wanted = changes(parse_property_lines(text))
        after = _apply_edits(text, wanted)
        if after == text:
            return False
        new = path.with_name(path.name + ".new")
        with open(new, "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return True


def _apply_edits(text: str, wanted: Mapping[str, str | None]) -> str:
    lines = text.splitlines(keepends=True)
    rest = dict(wanted)
    for line in reversed(parse_property_lines(text)):
        name = canonical_name(line.name)
        if name not in wanted:
            continue
        value = rest.pop(name, None)
        ending = "\r\n" if lines[line.first_line - 1].endswith("\r\n") else "\n"
        lines[line.first_line - 1 : line.last_line] = [f"{line.name}={value}{ending}"] if value is not None else []
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, *(f"{name}={value}\n" for name, value in rest.items() if value is not None)])


def write_preferences(path: Path, wanted: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """``wanted``: the values in effect, by key; ``defaults``: the values without a line. A line with an equal value
    stays as it is, whatever its spelling. ``OSError``, :class:`BadInput`."""

    def changes(lines: list[PropertyLine]) -> dict[str, str | None]:
        there = {canonical_name(line.name): line.value for line in lines}
        said = {key: there[property_name(key)] for key in KEYS if property_name(key) in there}
        now = format_preferences(validate_preferences(said))
        different = [key for key in KEYS if now[key] != wanted[key]]
        return {property_name(key): None if wanted[key] == defaults[key] else wanted[key] for key in different}

    rewrite_lines(path, changes)


def write_masters(path: Path, node: str, repository: str, now: Configuration) -> bool:
    """Updates the file's peers to those of the log: adds new ones that have an address, deletes removed ones. Returns
    whether anything changed. ``OSError``, :class:`BadProperties`."""

    def changes(lines: list[PropertyLine]) -> dict[str, str | None]:
        there = {canonical_name(line.name): line.value for line in lines}
        numbered = [match for name in there if (match := _NUMBERED_NAME.fullmatch(name)) and match[1] == "peer"]
        ids = {int(match[2]): there[match[0]] for match in numbered if match[3] == "id"}
        wanted: dict[str, str | None] = {match[0]: None for match in numbered if ids.get(int(match[2])) in now.removed}
        number = max(ids, default=0)
        for master in now.masters:
            if master.node == node or master.node in ids.values() or not master.urls:
                continue
            number += 1
            wanted |= _peer_lines(f"peer.{number}", master, repository)
        return wanted

    return rewrite_lines(path, changes)


def _peer_lines(name: str, master: Master, repository: str) -> dict[str, str]:
    lines = {f"{name}.id": master.node, f"{name}.url": f"{master.urls[0].rstrip('/')}/repositories/{repository}"}
    own = _NODE_NUMBER.match(master.node)
    if own is None or own[1] != master.data_center:
        lines[f"{name}.data-center"] = master.data_center
    if master.weight != 1:
        lines[f"{name}.vote-weight"] = str(master.weight)
    return lines
