"""The command ``innet certificates``."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from innet.rpc import tls
from innet.terminal.console import console
from innet.terminal.tables import folding_table

_out = console(soft_wrap=True)


def certificates(
    folder: Annotated[Path, typer.Argument(help="The folder for the certificates.")],
    host: Annotated[
        list[str],
        typer.Option(
            help="A name or IP address of the controller or a switch. Give one option for each."
        ),
    ] = [],  # noqa: B006  (typer copies it)
    days: Annotated[
        int, typer.Option(min=1, help="Days for which the certificates are valid.")
    ] = 365,
    force: Annotated[
        bool,
        typer.Option("--force", help="Make new authorities. Every machine then needs new files."),
    ] = False,
) -> None:
    """Make two authorities and certificates for TLS on all links, or renew the certificates.

    This is for a rack of your own. An organization's authority can make them as well: SECURITY.md says
    what they have to contain.
    """
    from innet.rpc.certificates import make

    made = make(folder, host, timedelta(days=days), force=force)
    _out.print(f"{'new authorities' if made.new else 'the same authorities as before'} in {folder}")
    _out.print(f"certificates for {days} days; the servers' are for {', '.join(made.hosts)}")
    table = folding_table("role", "needs", "and is started with")
    started = {
        tls.CONTROLLER: "innet controller --tls FOLDER",
        tls.SWITCH: "--grpc-server-ssl --grpc-server-with-client-auth --grpc-server-cacert ca.pem "
        "--grpc-server-cert switch.pem --grpc-server-key switch-key.pem",
        tls.ADMIN: "INNET_TLS=FOLDER",
        tls.WORKER: "INNET_TLS=FOLDER",
    }
    for role, options in started.items():
        table.add_row(role, " ".join(path.name for path in tls.files(folder, role)), options)
    _out.print(table)
    _out.print("copy the rest, the keys of the authorities, nowhere: who has them can be anybody")
