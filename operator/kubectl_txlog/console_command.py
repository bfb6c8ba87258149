"""``kubectl txlog console``. Needs Python's own library alone."""

from __future__ import annotations

import sys
import webbrowser
from typing import Annotated

from kubectl_txlog.command_line import Option
from kubectl_txlog.console_forwarder import ConsoleForwarder, serve_console
from kubectl_txlog.options import NameArgument, SiteOptions
from txlog.model.errors import BadInput


def console(
    name: NameArgument = None,
    port: Annotated[int, Option("on this machine; 0: a free one", min=0, max=65535)] = 0,
    no_browser: Annotated[bool, Option("do not open the address in a browser", ("--no-browser",))] = False,
    *,
    sites: SiteOptions,
) -> None:
    """Serve the console of a master on this machine, until Ctrl-C. It prints the address, which is as good as your
    credentials: do not pass it on."""
    site, master = sites.masters(name).first_live()

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
