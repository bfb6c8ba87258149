"""``kubectl txlog console``. Needs Python's own library alone."""

from __future__ import annotations

import sys
import webbrowser
from typing import Annotated

from kubectl_txlog.command_line import Option
from kubectl_txlog.console_forwarder import ConsoleForwarder, serve_console
from kubectl_txlog.master_access import MasterProxies, SiteAccess, find_masters
from kubectl_txlog.options import ConfigOption, ContextOption, NameArgument, NamespaceOption
from txlog.model.errors import BadInput, Unavailable


def console(
    name: NameArgument = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    port: Annotated[int, Option("on this machine; 0: a free one", min=0, max=65535)] = 0,
    no_browser: Annotated[bool, Option("do not open the address in a browser", ("--no-browser",))] = False,
) -> None:
    """Serve the console of a master on this machine, until Ctrl-C. It prints the address, which is as good as your
    credentials: do not pass it on."""
    site, master = _live_master(find_masters(name, namespace, context, kubeconfig))

    def show(address: str) -> None:
        print(f"The console is at {address}   Ctrl-C ends it.", flush=True)
        if not no_browser and sys.stdout.isatty():
            webbrowser.open(address)

    headers = {**site.server.headers, **site.headers}
    forwarder = ConsoleForwarder(site.server.server + master, headers, site.server.tls)
    try:
        serve_console(forwarder, port, show)
    except OSError as failed:
        raise BadInput(f"--port {port}: {failed.strerror or failed}") from None


def _live_master(access: MasterProxies) -> tuple[SiteAccess, str]:
    last: Unavailable | None = None
    for site, master in access.masters():
        try:
            site.ask(master, "GET", "/txlog/status")
        except Unavailable as silent:
            last = silent
        else:
            return site, master
    raise Unavailable("NoMaster", f"no master answers: {last}")
