"""Options of all commands of ``kubectl txlog``, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kubectl_txlog.command_line import Argument, Option

NameArgument = Annotated[str | None, Argument("of the TxLogCluster; default: the only one")]
ClusterOption = Annotated[str | None, Option("name of the TxLogCluster; default: the only one", ("--cluster",))]
NamespaceOption = Annotated[str | None, Option("default: the context's", ("-n", "--namespace"))]
ContextOption = Annotated[
    list[str] | None, Option("of the kubeconfig, one for each data centre. Default: the current one", ("--context",))
]
ConfigOption = Annotated[Path | None, Option("default: as kubectl finds it", ("--kubeconfig",))]
JsonOption = Annotated[bool, Option("print JSON", ("--json",))]
YesOption = Annotated[bool, Option("do not ask for confirmation", ("--yes",))]
