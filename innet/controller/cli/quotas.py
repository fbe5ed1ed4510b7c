"""The commands ``innet quota``."""

from typing import Annotated

import typer

from innet.controller.jobs.quotas import DEFAULT
from innet.errors import UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import DEFAULT_ADDRESS, connected, translated
from innet.rpc.plain import as_plain
from innet.terminal.console import console, say_json
from innet.terminal.options import MOST, AsJson, ControllerAddress, TlsFolder
from innet.terminal.tables import folding_table

app = typer.Typer(no_args_is_help=True, help="Limit what one owner of jobs holds at once.")
_out = console(soft_wrap=True)
_RESOURCES = ("jobs", "slots", "workers")
Owner = Annotated[
    str, typer.Argument(metavar="[OWNER]", help="The name in the certificate of the owner.")
]


@app.command("set")
def set_quota(
    owner: Owner = "",
    default: Annotated[
        bool, typer.Option("--default", help="Limit all owners that have no quota of their own.")
    ] = False,
    jobs: Annotated[
        int,
        typer.Option(
            min=0, max=MOST, help="The most jobs, including those that wait; 0: no limit."
        ),
    ] = 0,
    slots: Annotated[
        int,
        typer.Option(
            min=0, max=MOST, help="The most slots of all the owner's jobs together; 0: no limit."
        ),
    ] = 0,
    workers: Annotated[
        int,
        typer.Option(
            min=0, max=MOST, help="The most workers of all the owner's jobs together; 0: no limit."
        ),
    ] = 0,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Set the quota of an owner of jobs.

    The quota replaces the owner's previous quota. Running jobs go on, even if
    they exceed the quota. If you give no limit, the command removes the owner's
    quota.
    """
    if bool(owner) == default:
        raise UsageError("give either the name of an owner or --default")
    name = owner or DEFAULT
    request = pb.SetQuotaRequest(name=name, most_jobs=jobs, most_slots=slots, most_workers=workers)
    with connected(address, tls_folder) as stub, translated("set the quota"):
        quota = stub.SetQuota(request)
    use = ", ".join(f"{each}: {_cell(quota, each)}" for each in _RESOURCES)
    _out.print(f"quota of {_title(quota)}: {use}")


@app.command("list")
def list_quotas(
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show the quotas of owners of jobs, and what is in use. A user sees only the user's own line."""
    with connected(address, tls_folder) as stub, translated("list the quotas"):
        found = stub.ListQuotas(pb.ListQuotasRequest()).quotas
    if as_json:
        say_json([as_plain(each) for each in found])
        return
    table = folding_table("owner", *_RESOURCES)
    for each in found:
        table.add_row(_title(each), *(_cell(each, name) for name in _RESOURCES))
    _out.print(table)


def _cell(quota: pb.Quota, resource: str) -> str:
    """Return the use of a resource, and the limit if there is one."""
    used, most = getattr(quota, resource), getattr(quota, f"most_{resource}")
    if quota.name == DEFAULT:
        return f"{most} each" if most else "no limit"
    return f"{used} of {most}" if most else f"{used}, no limit"


def _title(quota: pb.Quota) -> str:
    return "all others" if quota.name == DEFAULT else quota.name
