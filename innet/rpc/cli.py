"""The commands ``innet certificates``."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from innet.errors import UsageError
from innet.rpc import issued as ledger
from innet.rpc import tls
from innet.rpc.words import counted
from innet.terminal.console import console
from innet.terminal.tables import folding_table

app = typer.Typer(
    no_args_is_help=True, help="Make and revoke certificates for TLS on all connections."
)
_out = console(soft_wrap=True)


class PersonalRole(StrEnum):
    """A role of one person or machine."""

    ADMIN = tls.ADMIN
    USER = tls.USER
    OBSERVER = tls.OBSERVER
    WORKER = tls.WORKER


Folder = Annotated[Path, typer.Argument(help="The folder with the authorities.")]
Days = Annotated[
    int, typer.Option(min=1, max=36_500, help="Days for which the certificates are valid.")
]


@app.command("make")
def make(
    folder: Annotated[Path, typer.Argument(help="The folder for the certificates.")],
    host: Annotated[
        list[str],
        typer.Option(
            help="A name or IP address of the controller or a switch. Give one option for each."
        ),
    ] = [],  # noqa: B006  (typer copies it)
    days: Days = 365,
    force: Annotated[
        bool,
        typer.Option("--force", help="Make new authorities. Every machine then needs new files."),
    ] = False,
) -> None:
    """Make two authorities and the certificates of a rack, or renew the certificates.

    This is for a rack of your own. An organization's authority can make the
    certificates as well. SECURITY.md says what the certificates have to
    contain.
    """
    from innet.rpc import certificates

    made = certificates.make(folder, host, timedelta(days=days), force=force)
    _out.print(f"{'new authorities' if made.new else 'the same authorities as before'} in {folder}")
    _out.print(
        f"certificates for {counted(days, 'day')}; the servers' are for {', '.join(made.hosts)}"
    )
    table = folding_table("role", "needs", "and is started with")
    started = {
        tls.CONTROLLER: "innet controller --tls FOLDER",
        tls.SWITCH: "--grpc-server-ssl --grpc-server-with-client-auth --grpc-server-cacert ca.pem "
        "--grpc-server-cert switch.pem --grpc-server-key switch-key.pem",
        tls.ADMIN: "INNET_TLS=FOLDER",
        tls.WORKER: "INNET_TLS=FOLDER",
    }
    for role, options in started.items():
        names = [path.name for path in tls.files(folder, role)]
        names += [tls.REVOKED] if role in tls.SERVERS else []
        table.add_row(role, " ".join(names), options)
    _out.print(table)
    _out.print("copy the authorities' keys nowhere: whoever has them can make any certificate")


@app.command("issue")
def issue(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The name of the person or machine.")],
    role: Annotated[
        list[PersonalRole],
        typer.Option(help="What the owner may do. Repeat the option for more roles."),
    ],
    days: Days = 365,
) -> None:
    """Make certificates for one person or machine, in a folder of their own.

    A [b]user[/b] creates jobs, and sees and deletes only those. An
    [b]observer[/b] sees everything and changes nothing. A [b]worker[/b] joins
    jobs, with their tokens. An [b]admin[/b] may do everything.
    """
    from innet.rpc import certificates

    own = certificates.issue(folder, name, role, timedelta(days=days))
    _out.print(f"certificates for {counted(days, 'day')} in {own}")
    _out.print(f"give this folder to {name}, who uses it as INNET_TLS, and remove it here")


@app.command("revoke")
def revoke(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The name that the certificates were made for.")] = "",
    certificate: Annotated[
        list[Path],
        typer.Option(
            help="Revoke the certificate in this file. Repeat the option for more files.",
            metavar="PEM",
        ),
    ] = [],  # noqa: B006  (typer copies it)
) -> None:
    """Revoke all certificates of a name, or those in files. The controller then refuses them.

    A running controller reads the list [b]revoked.txt[/b] in the folder that
    its option --tls names. If that is another folder, copy the list there.
    """
    if not (name or certificate):
        raise UsageError("give a NAME, or files with --certificate")
    for path in ledger.revoke_files(folder, certificate):
        _out.print(f"revoked: {path}")
    revoked = ledger.revoke(folder, name) if name else []
    for each in revoked:
        _out.print(f"revoked: {each.name}, {each.role}, valid until {each.expires:%Y-%m-%d}")
    if name and not revoked:
        _out.print(f"all certificates of {name} have been revoked before")
    _out.print(f"the controller has to find {folder / tls.REVOKED} in its own folder")
    if certificate or any(each.role == tls.ADMIN for each in revoked):
        _out.print(
            f"innet-switch has to find {tls.REVOKED} beside its certificate; other switches accept "
            "the certificate until it expires"
        )


@app.command("list")
def list_certificates(folder: Folder) -> None:
    """Show all certificates that were made, when they expire, and which of them are revoked."""
    listed, now = ledger.listed(folder), datetime.now(UTC)
    table = folding_table("name", "role", "valid until (UTC)", "state")
    for each in ledger.issued(folder):
        if each.certificate in listed.certificates or each.fingerprint in listed.fingerprints:
            state = "revoked"
        elif each.expires < now:
            state = "ended"
        elif not each.known:
            state = "unknown"
        else:
            state = "ends soon" if tls.ends_soon(each.expires) else "valid"
        table.add_row(each.name, each.role, f"{each.expires:%Y-%m-%d %H:%M}", state)
    _out.print(table)
    if listed.problem:
        _out.print(f"{folder / tls.REVOKED}: {listed.problem}")
