"""The masters that a command asks: from ``--master`` or from the state folder of the local cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from txlog.backup.worker_lookup import TransportFactory
from txlog.cli.options import ClusterOptions
from txlog.client import MasterClient, MasterUnreachable
from txlog.client.ca_trust import CA_FILE
from txlog.client.connection import MasterConnection
from txlog.client.credentials import TOKEN_FILE
from txlog.client.json_calls import JsonCalls
from txlog.local.local_errors import NotRunning
from txlog.local.state_folder import StateFolder
from txlog.model.errors import BadInput, NotFound, TxLogError, Unavailable
from txlog.workers.http_transport import HttpTransport

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0
SURVEY_TIMEOUT_S = 5.0
"""For a request to every master, some of which may be down."""

ClientFactory = Callable[[str, float], MasterClient]
"""From a URL and the seconds that an answer may take."""


@dataclass(frozen=True)
class CliCluster:
    """The masters' URLs by data centre. ``state`` is None when ``--master`` named them. ``open_client`` opens a client
    of a master for its URL, ``open_transport`` a connection to a worker."""

    data_centers: dict[str, list[str]]
    state: StateFolder | None
    open_client: ClientFactory = MasterClient
    open_transport: TransportFactory = HttpTransport

    @property
    def masters(self) -> list[str]:
        """The URLs of all masters."""
        return [url for urls in self.data_centers.values() for url in urls]

    def ask_first(self, ask: Callable[[MasterClient], T], data_center: str | None = None) -> T:
        """The answer of the first master that answers; its refusal is an answer. ``data_center``: only the masters of
        this one. :class:`Unavailable` when none answers."""
        last: TxLogError | None = None
        for url in self.masters if data_center is None else self.data_centers[data_center]:
            with self.open_client(url, REQUEST_TIMEOUT_S) as client:
                try:
                    return ask(client)
                except (MasterUnreachable, Unavailable) as error:
                    last = error
        raise Unavailable("NoMaster", f"no master answers: {last}")

    def ask_all(self, ask: Callable[[MasterClient], T]) -> dict[str, T | TxLogError]:
        """By URL: the answer of each master, or why there is none."""
        return ask_each({url: url for url in self.masters}, ask, self.open_client)

    def find_remaining(self, without: Collection[str]) -> tuple[str, str]:
        """URL and node id of a master that is none of ``without``. :class:`NotFound` when no other one answers."""
        silent = []
        for url, answer in self.ask_all(MasterClient.status).items():
            if isinstance(answer, TxLogError):
                silent.append(f"{url}: {answer}")
            elif answer.node not in without:
                return url, answer.node
        raise NotFound("no master answers that stays; " + "; ".join(silent))

    def find_data_center(self, name: str | None) -> str:
        """The data centre of this name, by default the first one."""
        name = name or next(iter(self.data_centers))
        if name not in self.data_centers:
            raise BadInput(f"--data-center {name}: there are {', '.join(self.data_centers)}")
        return name

    def open_masters(self, data_center: str | None, closing: ExitStack) -> tuple[str, list[MasterClient]]:
        """A data centre's name (by default the first) and clients of its masters, which ``closing`` closes."""
        name = self.find_data_center(data_center)
        return name, [
            closing.enter_context(self.open_client(url, REQUEST_TIMEOUT_S)) for url in self.data_centers[name]
        ]


def ask_each(
    masters: Mapping[str, str], ask: Callable[[MasterClient], T], open_client: ClientFactory = MasterClient
) -> dict[str, T | TxLogError]:
    """By name: the answer of each master, or why there is none. ``masters``: URLs by name."""
    found: dict[str, T | TxLogError] = {}
    for name, url in masters.items():
        with open_client(url, SURVEY_TIMEOUT_S) as client:
            try:
                found[name] = ask(client)
            except TxLogError as error:
                found[name] = error
    return found


def request_once(cluster: CliCluster, method: str, path: str, body: object, timeout_s: float) -> Any:
    """The JSON of the answer to one request, of the first master that answers at all. ``body``: None sends none. Only a
    GET is repeated."""
    url = cluster.ask_first(lambda master: (master.status(), master.url)[1])
    with closing(MasterConnection(url, timeout_s=timeout_s)) as connection:
        return JsonCalls(connection).call(method, path, object, body=body, repeatable=method == "GET")


def find_cluster(options: ClusterOptions) -> CliCluster:
    """The masters from ``--master``, else those of the state folder."""
    return cluster_at(options.master) if options.master else local_cluster(options.state)


def cluster_at(urls: Sequence[str]) -> CliCluster:
    """The masters at these URLs, each of which must answer."""
    found: dict[str, list[str]] = {}
    for url in require_urls(urls):
        with MasterClient(url) as client:
            found.setdefault(client.status().data_center, []).append(url)
    return CliCluster(found, None)


def require_urls(urls: Sequence[str]) -> list[str]:
    """The values of ``--master``. :class:`BadInput` for one that is no URL."""
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"--master {url}: expected a URL such as http://127.0.0.1:7301")
    return list(urls)


def local_cluster(state: Path) -> CliCluster:
    """The masters of the cluster that runs on this machine. :class:`NotRunning` when nothing runs there."""
    folder = StateFolder(state)
    if not folder.exists or not folder.is_locked:
        raise NotRunning(folder.root)
    use_credentials(folder)
    topology = folder.topology()
    return CliCluster({dc: topology.master_urls(dc) for dc in topology.data_centers}, folder)


def use_credentials(folder: StateFolder) -> None:
    """Use the token and the certificate authorities of a state folder, unless the environment names others. A user
    that can read the folder may do everything there."""
    if folder.own_token_file.exists():
        os.environ.setdefault(TOKEN_FILE, str(folder.own_token_file))
    if folder.trusted_file.exists():
        os.environ.setdefault(CA_FILE, str(folder.trusted_file))
