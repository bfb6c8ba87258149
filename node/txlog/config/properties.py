"""``cluster.properties``: all that one master is started with, in place of a manifest. The file and its names are the
predecessor's (``node-id``, ``master-url``, ``peer.<n>.id``, ``peer.<n>.url``, ``split-recovery``: camel case mapped to
hyphens); what it had no name for is named in the same way. docs/reference/configuration.md lists them.

What changes while the master runs (settings, masters that come and go) is written back; remarks and order stay.
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
    checked,
    property_lines,
    property_name,
    texts_of,
)
from txlog.config.process import NodeConfig, PeerConfig, PipelineConfig, WorkerConfig
from txlog.config.values import Engine, at_least, parse_duration, parse_quantity, within
from txlog.model.configuration import Configuration, Master
from txlog.model.errors import BadInput
from txlog.model.ids import NODE_ID

BYTES_MAX: Final = 1 << 20
PREDECESSORS: Final = frozenset(
    {
        "auto-replication",
        "net-speed-bits-per-sec",
        "full-replication-time-factor",
        "min-time-to-consider-full-replication-s",
        "protect-single-worker",
        "master-replication-port",
    }
)
"""Names of the predecessor's that mean nothing here: passed over, and said."""
_SAID: Final = {"mode": "normal", "read-only": "false"}
"""What is not kept in the file here; the value that changes nothing."""
_REPOSITORY: Final = re.compile(r"/repositories/([A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)/?$")
_NUMBERED: Final = re.compile(r"(peer|worker)\.([0-9]{1,4})\.([a-z-]+)")
_NUMBERED_NAMES: Final = {
    "peer": ("id", "url", "data-center", "vote-weight", "peer-port"),
    "worker": ("id", "url", "engine"),
}
_OWN_NUMBER: Final = re.compile(r"^(.+)-([0-9]+)$")
_LOOPBACK: Final = "127.0.0.1"


class BadProperties(BadInput):
    """All that is wrong with the file: a line ``FILE:LINE: NAME: what stands there and what is expected`` each."""


@dataclass(frozen=True)
class Properties:
    """``node``: the master. ``url``: where clients find it, without the repository. ``same_center``: URLs of the
    masters of its data centre, itself first; ``elsewhere``: those of each other data centre. ``runs_pipeline``: whether
    its data centre's Spark application and duties are this machine's. ``passed_over``: names that mean nothing here."""

    node: NodeConfig
    url: str
    same_center: list[str]
    elsewhere: list[list[str]]
    runs_pipeline: bool
    passed_over: list[str]

    def pipeline(self, scratch: Path) -> PipelineConfig | None:
        """The Spark application of its data centre; None where the file names no stores, or says that it runs
        elsewhere."""
        if not self.runs_pipeline:
            return None
        workers = list(self.node.workers)
        return PipelineConfig(
            data_center=self.node.data_center, masters=self.same_center, workers=workers, scratch_folder=scratch
        )


def is_properties(path: Path) -> bool:
    """Whether a file of that name is one."""
    return path.suffix == ".properties"


def read_cluster_properties(path: Path) -> Properties:
    """:class:`BadProperties` with every mistake that was found."""
    return _Reading(str(path), property_lines(_text_of(path)), path.absolute().parent, path.absolute()).read()


def _text_of(path: Path) -> str:
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


def canonical(name: str) -> str:
    """The hyphenated spelling of a name, also of an attribute's (``NodeID``, ``maxPeerLag``); else the name itself."""
    return _SPELLINGS.get(_plain(name), name)


def _plain(name: str) -> str:
    return name.replace("-", "").lower()


# What a value is


def _node_id(value: str) -> str:
    if not NODE_ID.fullmatch(value):
        raise ValueError("small letters, digits and hyphens (at most 63), such as uk-1")
    return value


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(value)

    return read


def _one_of(*words: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        found = next((word for word in words if word.lower() == value.lower()), None)
        if found is None:
            raise ValueError(f"{', '.join(words[:-1])} or {words[-1]}")
        return found

    return read


def _truth(value: str) -> bool:
    return _one_of("true", "false")(value) == "true"


def _duration(least: str, most: str) -> Callable[[str], int]:
    check = within(least, most)
    return lambda value: check(parse_duration(value))


def _size(value: str) -> int:
    return at_least("64Mi")(parse_quantity(value if not value.isdigit() else "without a unit"))


def _text(value: str) -> str:
    return value


def _address(value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not colon or not re.fullmatch(r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+", host):
        raise ValueError("HOST:PORT, such as 0.0.0.0:7300")
    return host.strip("[]"), _number(1, 65535)(port)


def _sources(value: str) -> list[str]:
    if not all(re.fullmatch(r"https?://[^/\s?#@]+/[^\s#]*", each) for each in value.split()):
        raise ValueError("URLs with spaces between them, such as https://data.example.net/dumps/")
    return value.split()


def _networks(value: str) -> list[str]:
    try:
        return [str(ipaddress.ip_network(each)) for each in value.split()]
    except ValueError:
        raise ValueError("networks with spaces between them, such as 10.1.0.0/16") from None


def _seconds(value: str) -> float:
    return _duration("100ms", "10m")(value) / 1000


_PORT: Final = _number(1, 65535)
_VOTES: Final = _number(0, 1000)
_ENGINE: Final = _one_of(*get_args(Engine))
_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "storage-size": ("journal_bytes_max", _size),
    "log-keep": ("log_keep_ms", _duration("0", "520w")),
    "log-max-size": ("log_bytes_max", _size),
    "peer-port": ("peer_port", _PORT),
    "split-mode": ("split_mode", _one_of("Continue", "Majority")),
    "key-retention": ("key_retention_ms", _duration("1s", "520w")),
    "durability": ("durability", _one_of("accepted", "synced", "quorum", "applied", "applied-all")),
    "write-timeout": ("write_timeout_s", _seconds),
    "non-deterministic-updates": ("non_deterministic_updates", _one_of("effects", "refuse")),
    "updates-without-graph": ("updates_without_graph", _one_of("default", "all")),
    "mixed-engines": ("mixed_engines", _truth),
}
"""By name: the field of :class:`NodeConfig`, and how a value is read (``ValueError`` says what is expected)."""
_PATHS: Final[Mapping[str, str]] = {
    "journal-folder": "journal_folder",
    "peer-token-file": "peer_token_file",
    "users-file": "users_file",
    "own-token-file": "own_token_file",
    "tls-folder": "tls_folder",
    "peer-tls-folder": "peer_tls_folder",
}
_OTHERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "node-id": _node_id,
    "master-url": _text,
    "data-center": _node_id,
    "vote-weight": _VOTES,
    "listen-address": _address,
    "run-pipeline": _truth,
}
_LISTS: Final = ("load-sources", "load-networks")
"""Values between spaces."""
NAMES: Final[tuple[str, ...]] = (*_OTHERS, *map(property_name, KEYS), *_FIELDS, *_PATHS, *_LISTS)
"""All that are not numbered."""
_SPELLINGS: Final = {_plain(name): name for name in (*NAMES, *PREDECESSORS, *_SAID)}
_DEFAULT_PATHS: Final = {"journal-folder": "journal", "peer-token-file": "peer-token"}
_PREFERENCE_FIELDS: Final = {
    name: name if name in ("split_recovery", "worker_repair") else f"{name}_ms" for name in Preferences.model_fields
}
"""Of :class:`Preferences` and of :class:`NodeConfig`."""


@dataclass
class _Reading:
    """Of one file: what was found so far, and what is wrong."""

    file: str
    given: list[PropertyLine]
    folder: Path
    path: Path
    wrong: list[tuple[int, str]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    passed_over: list[str] = field(default_factory=list)

    def blame(self, line: int, name: str, said: str) -> None:
        place = f"{self.file}:{line}" if line else self.file
        self.wrong.append((line, f"{place}: {name}: {said}"))

    def read(self) -> Properties:
        for line in self.given:
            self._take(line)
        preferences = self._preferences()
        found = self._whole(preferences) if not self.wrong else None
        if found is None:
            said = [text for _, text in sorted(self.wrong)]
            raise BadProperties("\n".join(dict.fromkeys(said)))
        return found

    def _take(self, line: PropertyLine) -> None:
        name = canonical(line.name)
        numbered = _NUMBERED.fullmatch(name)
        if name in self.at:
            self.blame(line.began, line.name, f"is there twice, as in line {self.at[name]}; expected once")
            return
        self.at[name] = line.began
        if name in PREDECESSORS:
            self.passed_over.append(line.name)
            return
        read = self._reader(name)
        if numbered is not None and numbered[3] not in _NUMBERED_NAMES[numbered[1]]:
            there = ", ".join(f"{numbered[1]}.<n>.{each}" for each in _NUMBERED_NAMES[numbered[1]])
            self.blame(line.began, line.name[:80], f"no such property; expected one of {there}")
        elif read is None:
            close = difflib.get_close_matches(name, (*NAMES, "peer.1.id", "peer.1.url", "worker.1.url"), n=1)
            self.blame(line.began, line.name[:80], f"no such property{f'; expected {close[0]}?' if close else ''}")
        elif not line.value:
            self.blame(line.began, line.name, f"has no value; expected {line.name}=VALUE")
        else:
            try:
                self.values[name] = read(line.value)
            except ValueError as wrong:
                self.blame(line.began, line.name, f'is "{line.value[:60]}"; expected {wrong}')

    def _reader(self, name: str) -> Callable[[str], Any] | None:
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:
            kinds = {"id": _node_id, "data-center": _node_id, "vote-weight": _VOTES, "peer-port": _PORT}
            return {**kinds, "url": _text, "engine": _ENGINE}.get(numbered[3])
        if name in _SAID:
            return self._only(name)
        if name in _FIELDS:
            return _FIELDS[name][1]
        if name in _LISTS:
            return _sources if name == "load-sources" else _networks
        if name in _PATHS:
            return lambda value: self.folder / value
        if name in map(property_name, KEYS):
            return _text
        return _OTHERS.get(name)

    def _only(self, name: str) -> Callable[[str], str]:
        def read(value: str) -> str:
            if value.lower() != _SAID[name]:
                raise ValueError(f"{_SAID[name]}, or no such line: it is set while the master runs (txlog peer mute)")
            return value

        return read

    def _preferences(self) -> Preferences | None:
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
                self.blame(self.at.get(name, 0), name, f"{got}expected {what}")
            return None

    # All of it together

    def _url(self, name: str, repository: str | None) -> tuple[str, str, str] | None:
        """The URL without its repository, the repository, and the host; blames and gives None else."""
        value: str = self.values[name]
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        found = _REPOSITORY.search(parts.path)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or port == 0 or found is None:
            what = "an RDF4J repository's URL, such as http://uk-1.example.net:7300/repositories/demo"
            self.blame(self.at[name], name, f'is "{value[:100]}"; expected {what}')
            return None
        if repository is not None and found[1] != repository:
            said = f'is of the repository "{found[1]}"; expected "{repository}", the same as in master-url'
            self.blame(self.at[name], name, said)
            return None
        base = parts.path[: found.start()].removesuffix("/rdf4j-server").rstrip("/")
        return f"{parts.scheme}://{parts.netloc}{base}", found[1], parts.hostname

    def _missing(self, name: str, example: str) -> None:
        self.blame(0, name, f"is missing; expected {name}={example}")

    def _center(self, node: str, name: str) -> str | None:
        """As given, else the id without its number."""
        told: str | None = self.values.get(name)
        own = _OWN_NUMBER.match(node)
        if told is None and own is None:
            at = self.at.get(name.replace("data-center", "id"), self.at.get("node-id", 0))
            self.blame(at, name, f"is missing; expected {name}=NAME, since {node} ends in no number as uk-1 does")
        return told or (own[1] if own is not None else None)

    def _numbers(self, kind: str) -> list[int]:
        found = (match for name in self.at if (match := _NUMBERED.fullmatch(name)) and match[1] == kind)
        return sorted({int(match[2]) for match in found})

    def _whole(self, preferences: Preferences | None) -> Properties | None:
        for name, example in (("node-id", "uk-1"), ("master-url", "http://uk-1.example.net:7300/repositories/demo")):
            if name not in self.values:
                self._missing(name, example)
        if self.wrong or preferences is None:
            return None
        values, node = self.values, str(self.values["node-id"])
        mine, center = self._url("master-url", None), self._center(node, "data-center")
        if mine is None or center is None:
            return None
        url, repository, host = mine
        secure = "peer-tls-folder" in values
        own = PeerConfig(node=node, data_center=center, url=url, weight=values.get("vote-weight", 1))
        peers, urls = self._peers(own, repository, values.get("peer-port") if secure else None)
        workers = self._workers(center)
        scheme = urlsplit(url).scheme
        if "tls-folder" in values and scheme != "https":
            self.blame(self.at["master-url"], "master-url", "is http; expected https, since there is a tls-folder")
        if scheme == "https" and not {"tls-folder", "listen-address"} & set(values):
            said = "is https; expected a tls-folder, or the listen-address behind whoever ends TLS"
            self.blame(self.at["master-url"], "master-url", said)
        if self.wrong:
            return None
        port = urlsplit(url).port or (443 if scheme == "https" else 80)
        listen = values.get("listen-address", (host, port))
        fields: dict[str, Any] = {entry[0]: values[name] for name, entry in _FIELDS.items() if name in values}
        fields |= {own: values.get(name) for name, own in _PATHS.items() if name in values}
        for name, default in _DEFAULT_PATHS.items():
            fields.setdefault(_PATHS[name], self.folder / default)
        fields |= {own: getattr(preferences, name) for name, own in _PREFERENCE_FIELDS.items()}
        fields |= {"node": node, "data_center": center, "repository": repository, "properties_file": self.path}
        fields |= {"host": listen[0], "port": listen[1], "peers": peers, "workers": workers}
        if "load-sources" in values:
            fields["load"] = {"sources": values["load-sources"], "networks": values.get("load-networks", [])}
        elif "load-networks" in values:
            self.blame(self.at["load-networks"], "load-networks", "is of no use without load-sources")
            return None
        config = self._node_config(fields)
        if config is None:
            return None
        first = next(peer.node for peer in peers if peer.data_center == center) == node
        same = [url, *(urls[peer.node] for peer in peers if peer.data_center == center and peer.node != node)]
        others = dict.fromkeys(peer.data_center for peer in peers if peer.data_center != center)
        return Properties(
            node=config,
            url=url,
            same_center=same,
            elsewhere=[[urls[peer.node] for peer in peers if peer.data_center == other] for other in others],
            runs_pipeline=bool(workers) and values.get("run-pipeline", first),
            passed_over=self.passed_over,
        )

    def _node_config(self, fields: dict[str, Any]) -> NodeConfig | None:
        by_field = {**{own: name for name, (own, _) in _FIELDS.items()}, **{own: name for name, own in _PATHS.items()}}
        try:
            return NodeConfig.model_validate(fields)
        except ValidationError as errors:
            for error in errors.errors():
                own = str(error["loc"][0]) if error["loc"] else ""
                name = by_field.get(own, property_name(own).replace("_", "-"))
                said = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda field: field[0].replace("_", "-"), error["msg"])
                self.blame(self.at.get(name, 0), name or "the file", said)
            return None

    def _peers(
        self, own: PeerConfig, repository: str, peer_port: int | None
    ) -> tuple[list[PeerConfig], dict[str, str]]:
        """All masters, this one included, in the order of data centre and number: each file names the others only, and
        precedence must be the same everywhere. Beside them, where clients find each."""
        found, urls = {own.node: own}, {own.node: own.url}
        for number in self._numbers("peer"):
            name = f"peer.{number}"
            lacks = [part for part in ("id", "url") if f"{name}.{part}" not in self.values]
            if lacks:
                line = min(at for each, at in self.at.items() if each.startswith(f"{name}."))
                self.blame(line, f"{name}.{lacks[0]}", f"is missing; expected {name}.{lacks[0]}=VALUE")
                continue
            node = str(self.values[f"{name}.id"])
            told, center = self._url(f"{name}.url", repository), self._center(node, f"{name}.data-center")
            if told is None or center is None:
                continue
            if node in found:
                self.blame(self.at[f"{name}.id"], f"{name}.id", f"{node} is there twice; every master has its own id")
                continue
            if told[0] in urls.values():
                self.blame(self.at[f"{name}.url"], f"{name}.url", f"{told[0]} is there twice; every master has its own")
                continue
            urls[node] = told[0]
            port = self.values.get(f"{name}.peer-port", peer_port)
            host = f"[{told[2]}]" if ":" in told[2] else told[2]
            reached = told[0] if port is None else f"http://{host}:{port}"
            weight = self.values.get(f"{name}.vote-weight", 1)
            found[node] = PeerConfig(node=node, data_center=center, url=reached, weight=weight)
        return sorted(found.values(), key=_precedence), urls

    def _workers(self, center: str) -> list[WorkerConfig]:
        found: list[WorkerConfig] = []
        for number in self._numbers("worker"):
            name = f"worker.{number}"
            line = min(at for each, at in self.at.items() if each.startswith(f"{name}."))
            url: str | None = self.values.get(f"{name}.url")
            if url is None:
                self.blame(line, f"{name}.url", f"is missing; expected {name}.url=URL")
                continue
            if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", url):
                self.blame(self.at[f"{name}.url"], f"{name}.url", f'is "{url[:60]}"; expected a URL of a store')
                continue
            called = self.values.get(f"{name}.id", f"{center}-worker-{number}")
            url, engine = url.rstrip("/"), self.values.get(f"{name}.engine", "oxigraph")
            if any(url == other.url or called == other.name for other in found):
                self.blame(line, name, f"{called} or {url} is there twice; every store has its own")
                continue
            if engine == "virtuoso" and self.values.get("mixed-engines"):
                self.blame(self.at["mixed-engines"], "mixed-engines", "a virtuoso is not mixed; expected no such line")
                continue
            if engine == "virtuoso" and self.values.get("non-deterministic-updates") != "refuse":
                self.blame(line, name, "a virtuoso takes no effects; expected non-deterministic-updates=refuse")
                continue
            found.append(WorkerConfig(name=called, url=url, engine=engine))
        return found


def _precedence(peer: PeerConfig) -> tuple[str, str, int, str]:
    own = _OWN_NUMBER.match(peer.node)
    return (peer.data_center, own[1] if own else peer.node, int(own[2]) if own else 0, peer.node)


# Written back

_WRITING: Final = threading.Lock()


def rewrite(path: Path, changes: Callable[[list[PropertyLine]], Mapping[str, str | None]]) -> bool:
    """Change what ``changes`` says of the lines that are there, by name: another value, or None for no such line.
    Durable when it returns, whole or not at all; whether anything was changed. ``OSError``, :class:`BadProperties`."""
    with _WRITING:
        text = _text_of(path)
        wanted = changes(property_lines(text))
        after = _edited(text, wanted)
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


def _edited(text: str, wanted: Mapping[str, str | None]) -> str:
    lines = text.splitlines(keepends=True)
    rest = dict(wanted)
    for line in reversed(property_lines(text)):
        name = canonical(line.name)
        if name not in wanted:
            continue
        value = rest.pop(name, None)
        ending = "\r\n" if lines[line.began - 1].endswith("\r\n") else "\n"
        lines[line.began - 1 : line.ended] = [f"{line.name}={value}{ending}"] if value is not None else []
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, *(f"{name}={value}\n" for name, value in rest.items() if value is not None)])


def write_preferences(path: Path, wanted: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """``wanted``: what is to be in force, by key; ``defaults``: what is without a line. A line that says it already, in
    whatever words, stays as it is. ``OSError``, :class:`BadInput`."""

    def changes(lines: list[PropertyLine]) -> dict[str, str | None]:
        there = {canonical(line.name): line.value for line in lines}
        said = {key: there[property_name(key)] for key in KEYS if property_name(key) in there}
        now = texts_of(checked(said))
        different = [key for key in KEYS if now[key] != wanted[key]]
        return {property_name(key): None if wanted[key] == defaults[key] else wanted[key] for key in different}

    rewrite(path, changes)


def write_masters(path: Path, node: str, repository: str, now: Configuration) -> bool:
    """The file's peers become those that the log names: who came with an address is added, who was taken out for good
    goes. Whether anything was changed. ``OSError``, :class:`BadProperties`."""

    def changes(lines: list[PropertyLine]) -> dict[str, str | None]:
        there = {canonical(line.name): line.value for line in lines}
        numbered = [match for name in there if (match := _NUMBERED.fullmatch(name)) and match[1] == "peer"]
        ids = {int(match[2]): there[match[0]] for match in numbered if match[3] == "id"}
        wanted: dict[str, str | None] = {match[0]: None for match in numbered if ids.get(int(match[2])) in now.removed}
        number = max(ids, default=0)
        for master in now.masters:
            if master.node == node or master.node in ids.values() or not master.urls:
                continue
            number += 1
            wanted |= _lines_of(f"peer.{number}", master, repository)
        return wanted

    return rewrite(path, changes)


def _lines_of(name: str, master: Master, repository: str) -> dict[str, str]:
    lines = {f"{name}.id": master.node, f"{name}.url": f"{master.urls[0].rstrip('/')}/repositories/{repository}"}
    own = _OWN_NUMBER.match(master.node)
    if own is None or own[1] != master.data_center:
        lines[f"{name}.data-center"] = master.data_center
    if master.weight != 1:
        lines[f"{name}.vote-weight"] = str(master.weight)
    return lines
