"""``cluster.properties``: the whole start configuration of one master, in place of a manifest. File and names are those
of the predecessor (``node-id``, ``master-url``, ``peer.<n>.id``, ``peer.<n>.url``, ``split-recovery``: camel case
mapped to hyphens). New properties follow the same pattern. docs/reference/configuration.md lists them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from txlog.config.access_specs import ORIGIN_PATTERN, SOURCE_PATTERN
from txlog.config.limit_specs import CLOSED_CONNECTIONS, EXECUTION_TIMEOUT, KEYS_MAX, LimitsSpec
from txlog.config.preferences import (
    KEYS,
    Preferences,
    PropertyLine,
    config_fields,
    describe_error,
    parse_property_lines,
    property_name,
)
from txlog.config.process_config import NodeConfig, PeerConfig, PipelineConfig, WorkerConfig
from txlog.config.property_parsers import (
    choice_parser,
    duration_parser,
    integer_parser,
    list_parser,
    parse_bool,
    parse_listen_address,
    parse_networks,
    parse_node_id,
    parse_seconds,
    parse_size,
    parse_text,
)
from txlog.config.units import STANDALONE_ENGINES, Engine, format_duration
from txlog.model.errors import BadInput

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
NUMBERED_NAME: Final = re.compile(r"(peer|worker)\.([0-9]{1,4})\.([a-z-]+)")
NODE_NUMBER: Final = re.compile(r"^(.+)-([0-9]+)$")


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
    limits: LimitsSpec

    def pipeline_config(self, scratch: Path) -> PipelineConfig | None:
        """The Spark application of its data centre; None where the file names no stores, or assigns the application to
        another machine."""
        if not self.runs_pipeline:
            return None
        workers = list(self.node.workers)
        return PipelineConfig(
            data_center=self.node.data_center,
            masters=self.local_masters,
            workers=workers,
            scratch_folder=scratch,
            **self.limits.pipeline_fields(),
        )


def is_properties(path: Path) -> bool:
    """Whether the file's name ends in ``.properties``."""
    return path.suffix == ".properties"


def read_cluster_properties(path: Path) -> ClusterProperties:
    """Parses the file. :class:`BadProperties` with every error."""
    return _PropertiesParser(
        str(path), parse_property_lines(read_text(path)), path.absolute().parent, path.absolute()
    ).parse()


def read_text(path: Path) -> str:
    """The text of the file. :class:`BadProperties` when it cannot be read."""
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


_PORT: Final = integer_parser(1, 65535)
_VOTES: Final = integer_parser(0, 1000)


@dataclass(frozen=True)
class _Property:
    """``parse``: of the value; a :class:`Path` is relative to the file. ``field``: that of :class:`NodeConfig` with the
    value, if it is one."""

    parse: Callable[[str], Any]
    field: str | None = None


_PROPERTIES: Final[Mapping[str, _Property]] = {
    "node-id": _Property(parse_node_id),
    "master-url": _Property(parse_text),
    "data-center": _Property(parse_node_id),
    "vote-weight": _Property(_VOTES),
    "listen-address": _Property(parse_listen_address),
    "run-pipeline": _Property(parse_bool),
    **{property_name(key): _Property(parse_text) for key in KEYS},
    "storage-size": _Property(parse_size, "journal_bytes_max"),
    "log-keep": _Property(duration_parser("0", "520w"), "log_keep_ms"),
    "log-max-size": _Property(parse_size, "log_bytes_max"),
    "peer-port": _Property(_PORT, "peer_port"),
    "split-mode": _Property(choice_parser("Continue", "Majority"), "split_mode"),
    "key-retention": _Property(duration_parser("1s", "520w"), "key_retention_ms"),
    "durability": _Property(choice_parser("accepted", "synced", "quorum", "applied", "applied-all"), "durability"),
    "write-timeout": _Property(parse_seconds, "write_timeout_s"),
    "non-deterministic-updates": _Property(choice_parser("effects", "refuse"), "non_deterministic_updates"),
    "updates-without-graph": _Property(choice_parser("default", "all"), "updates_without_graph"),
    "mixed-engines": _Property(parse_bool, "mixed_engines"),
    "journal-folder": _Property(Path, "journal_folder"),
    "peer-token-file": _Property(Path, "peer_token_file"),
    "users-file": _Property(Path, "users_file"),
    "own-token-file": _Property(Path, "own_token_file"),
    "tls-folder": _Property(Path, "tls_folder"),
    "peer-tls-folder": _Property(Path, "peer_tls_folder"),
    "cors-origins": _Property(
        list_parser(ORIGIN_PATTERN, "origins with spaces between them, such as https://yasgui.example.org"),
        "cors_origins",
    ),
    "load-sources": _Property(
        list_parser(SOURCE_PATTERN, "URLs with spaces between them, such as https://data.example.net/dumps/")
    ),
    "load-networks": _Property(parse_networks),
    "keys-max": _Property(integer_parser(*KEYS_MAX)),
    "execution-timeout": _Property(lambda text: format_duration(duration_parser(*EXECUTION_TIMEOUT)(text))),
    "closed-connections": _Property(integer_parser(*CLOSED_CONNECTIONS)),
}
_NUMBERED_NAMES: Final[Mapping[str, Mapping[str, Callable[[str], Any]]]] = {
    "peer": {
        "id": parse_node_id,
        "url": parse_text,
        "data-center": parse_node_id,
        "vote-weight": _VOTES,
        "peer-port": _PORT,
    },
    "worker": {"id": parse_node_id, "url": parse_text, "engine": choice_parser(*get_args(Engine))},
}
_LIMITS: Final = {"keys-max": "keysMax", "execution-timeout": "executionTimeout"} | {
    "closed-connections": "closedConnections"
}
NAMES: Final = tuple(_PROPERTIES)
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

    def add_error(self, name: str, said: str, line: int | None = None) -> None:
        """``line``: by default that of the name; 0 where the file has none."""
        line = self.line_of_name.get(name, 0) if line is None else line
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
        numbered = NUMBERED_NAME.fullmatch(name)
        if name in self.line_of_name:
            said = f"is there twice, as in line {self.line_of_name[name]}; expected once"
            self.add_error(line.name, said, line.first_line)
            return
        self.line_of_name[name] = line.first_line
        if name in GRAPHDB_ONLY_NAMES:
            self.ignored_names.append(line.name)
            return
        read = self._parser_for(name)
        if numbered is not None and numbered[3] not in _NUMBERED_NAMES[numbered[1]]:
            there = ", ".join(f"{numbered[1]}.<n>.{each}" for each in _NUMBERED_NAMES[numbered[1]])
            self.add_error(line.name[:80], f"no such property; expected one of {there}", line.first_line)
        elif read is None:
            close = difflib.get_close_matches(name, (*NAMES, "peer.1.id", "peer.1.url", "worker.1.url"), n=1)
            said = f"no such property{f'; expected {close[0]}?' if close else ''}"
            self.add_error(line.name[:80], said, line.first_line)
        elif not line.value:
            self.add_error(line.name, f"has no value; expected {line.name}=VALUE", line.first_line)
        else:
            try:
                self.values[name] = read(line.value)
            except ValueError as wrong:
                self.add_error(line.name, f'is "{line.value[:60]}"; expected {wrong}', line.first_line)

    def _parser_for(self, name: str) -> Callable[[str], Any] | None:
        numbered = NUMBERED_NAME.fullmatch(name)
        if numbered is not None:
            return _NUMBERED_NAMES[numbered[1]].get(numbered[3])
        if name in _FIXED_VALUES:
            return self._fixed_value_parser(name)
        return _PROPERTIES[name].parse if name in _PROPERTIES else None

    def _fixed_value_parser(self, name: str) -> Callable[[str], str]:
        def read(value: str) -> str:
            if value.lower() != _FIXED_VALUES[name]:
                raise ValueError(
                    f"{_FIXED_VALUES[name]}, or no such line: it is set while the master runs (txlog peer mute)"
                )
            return value

        return read

    def _parse_preferences(self) -> Preferences | None:
        given = {key: self.values[property_name(key)] for key in KEYS if property_name(key) in self.values}
        try:
            return Preferences.model_validate(given)
        except ValidationError as errors:
            for error in errors.errors():
                key, what = describe_error(dict(error))
                got = f'is "{str(given[key])[:60]}"; ' if key in given else ""
                self.add_error(property_name(key), f"{got}expected {what}")
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
            self.add_error(name, f'is "{value[:100]}"; expected {what}')
            return None
        if repository is not None and found[1] != repository:
            said = f'is of the repository "{found[1]}"; expected "{repository}", the same as in master-url'
            self.add_error(name, said)
            return None
        base = parts.path[: found.start()].removesuffix("/rdf4j-server").rstrip("/")
        return f"{parts.scheme}://{parts.netloc}{base}", found[1], parts.hostname

    def _data_center(self, node: str, name: str) -> str | None:
        """The given value, else the node id without its number."""
        given: str | None = self.values.get(name)
        own = NODE_NUMBER.match(node)
        if given is None and own is None:
            at = self.line_of_name.get(name.replace("data-center", "id"), self.line_of_name.get("node-id", 0))
            said = f"is missing; expected {name}=NAME, since {node} ends in no number as uk-1 does"
            self.add_error(name, said, at)
        return given or (own[1] if own is not None else None)

    def _numbers(self, kind: str) -> list[int]:
        found = (match for name in self.line_of_name if (match := NUMBERED_NAME.fullmatch(name)) and match[1] == kind)
        return sorted({int(match[2]) for match in found})

    def _build(self, preferences: Preferences | None) -> ClusterProperties | None:
        for name, example in (("node-id", "uk-1"), ("master-url", "http://uk-1.example.net:7300/repositories/demo")):
            if name not in self.values:
                self.add_error(name, f"is missing; expected {name}={example}")
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
            self.add_error("master-url", "is http; expected https, since there is a tls-folder")
        if scheme == "https" and not {"tls-folder", "listen-address"} & set(values):
            said = "is https; expected a tls-folder, or the listen-address behind a proxy that ends TLS"
            self.add_error("master-url", said)
        if self.errors:
            return None
        port = urlsplit(url).port or (443 if scheme == "https" else 80)
        listen = values.get("listen-address", (host, port))
        given = {name: values[name] for name in _PROPERTIES if name in values} | {
            name: Path(default) for name, default in _DEFAULT_PATHS.items() if name not in values
        }
        fields: dict[str, Any] = {
            entry.field: self.folder / given[name] if entry.parse is Path else given[name]
            for name, entry in _PROPERTIES.items()
            if entry.field is not None and name in given
        }
        fields |= config_fields(preferences)
        fields |= {"node": node, "data_center": center, "repository": repository, "properties_file": self.path}
        fields |= {"host": listen[0], "port": listen[1], "peers": peers, "workers": workers}
        if "load-sources" in values:
            fields["load"] = {"sources": values["load-sources"], "networks": values.get("load-networks", [])}
        elif "load-networks" in values:
            self.add_error("load-networks", "is of no use without load-sources")
            return None
        limits = LimitsSpec.model_validate({_LIMITS[name]: values[name] for name in _LIMITS if name in values})
        fields["limits"] = {"keys_max": limits.keys_max}
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
            limits=limits,
        )

    def _build_node_config(self, fields: dict[str, Any]) -> NodeConfig | None:
        by_field = {entry.field: name for name, entry in _PROPERTIES.items()}
        try:
            return NodeConfig.model_validate(fields)
        except ValidationError as errors:
            for error in errors.errors():
                own = str(error["loc"][0]) if error["loc"] else ""
                name = by_field.get(own, property_name(own).replace("_", "-"))
                said = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda field: field[0].replace("_", "-"), error["msg"])
                self.add_error(name or "the file", said)
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
                self.add_error(f"{name}.{lacks[0]}", f"is missing; expected {name}.{lacks[0]}=VALUE", line)
                continue
            node = str(self.values[f"{name}.id"])
            parsed, center = self._parse_url(f"{name}.url", repository), self._data_center(node, f"{name}.data-center")
            if parsed is None or center is None:
                continue
            if node in found:
                self.add_error(f"{name}.id", f"{node} is there twice; every master has its own id")
                continue
            if parsed[0] in urls.values():
                self.add_error(f"{name}.url", f"{parsed[0]} is there twice; every master has its own")
                continue
            urls[node] = parsed[0]
            port = self.values.get(f"{name}.peer-port", peer_port)
            host = f"[{parsed[2]}]" if ":" in parsed[2] else parsed[2]
            reached = parsed[0] if port is None else f"http://{host}:{port}"
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
                self.add_error(f"{name}.url", f"is missing; expected {name}.url=URL", line)
                continue
            if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", url):
                self.add_error(f"{name}.url", f'is "{url[:60]}"; expected a URL of a store')
                continue
            called = self.values.get(f"{name}.id", f"{center}-worker-{number}")
            url, engine = url.rstrip("/"), self.values.get(f"{name}.engine", "oxigraph")
            if any(url == other.url or called == other.name for other in found):
                self.add_error(name, f"{called} or {url} is there twice; every store has its own", line)
                continue
            if engine in STANDALONE_ENGINES and self.values.get("mixed-engines"):
                self.add_error("mixed-engines", f"a {engine} is not mixed; expected no such line")
                continue
            if engine == "virtuoso" and self.values.get("non-deterministic-updates") != "refuse":
                self.add_error(name, f"a {engine} takes no effects; expected non-deterministic-updates=refuse", line)
                continue
            found.append(WorkerConfig(name=called, url=url, engine=engine))
        return found


def _precedence_key(peer: PeerConfig) -> tuple[str, str, int, str]:
    own = NODE_NUMBER.match(peer.node)
    return (peer.data_center, own[1] if own else peer.node, int(own[2]) if own else 0, peer.node)
