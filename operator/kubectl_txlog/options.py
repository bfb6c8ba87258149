"""Options of all commands of ``kubectl txlog``, declared once.

A command takes a group of them as one parameter: :class:`NamedCluster` or :class:`ChosenCluster`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kubectl_txlog.command_line import Argument, Option
from kubectl_txlog.master_access import MasterProxies, find_masters

NameArgument = Annotated[str | None, Argument("of the TxLogCluster; default: the only one")]
ClusterOption = Annotated[str | None, Option("name of the TxLogCluster; default: the only one", ("--cluster",))]
NamespaceOption = Annotated[str | None, Option("default: the context's", ("-n", "--namespace"))]
ContextOption = Annotated[
    list[str] | None, Option("of the kubeconfig, one for each data centre. Default: the current one", ("--context",))
]
ConfigOption = Annotated[Path | None, Option("default: as kubectl finds it", ("--kubeconfig",))]
JsonOption = Annotated[bool, Option("print JSON", ("--json",))]
YesOption = Annotated[bool, Option("do not ask for confirmation", ("--yes",))]


@dataclass(frozen=True)
class SiteOptions:
    """The API servers that lead to the data centres."""

    namespace: NamespaceOption = None
    context: ContextOption = None
    kubeconfig: ConfigOption = None

    def masters(self, name: str | None) -> MasterProxies:
        """The masters of this TxLogCluster. Errors: as of :func:`~kubectl_txlog.master_access.find_masters`."""
        return find_masters(name, self.namespace, self.context, self.kubeconfig)


@dataclass(frozen=True)
class NamedCluster:
    """The TxLogCluster, named by the command's argument, and the form of the output."""

    name: NameArgument = None
    sites: SiteOptions = SiteOptions()
    json: JsonOption = False

    def masters(self) -> MasterProxies:
        """The masters of the cluster. Errors: as of :func:`~kubectl_txlog.master_access.find_masters`."""
        return self.sites.masters(self.name)


@dataclass(frozen=True)
class ChosenCluster:
    """The TxLogCluster, named by an option since the argument is another one, and the form of the output."""

    cluster: ClusterOption = None
    sites: SiteOptions = SiteOptions()
    json: JsonOption = False

    def masters(self) -> MasterProxies:
        """The masters of the cluster. Errors: as of :func:`~kubectl_txlog.master_access.find_masters`."""
        return self.sites.masters(self.cluster)
