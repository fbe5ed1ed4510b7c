"""The command ``innet``: every package's commands in one app."""

import typer

from innet.cluster.cli import apply
from innet.controller.cli import jobs, quotas, switches
from innet.controller.cli.deploy import deploy
from innet.controller.cli.server import controller
from innet.demo.cli import demo, rack
from innet.emulation.cli import emulate
from innet.model.cli import app as model
from innet.observe.cli import capture, doctor, top
from innet.p4.cli import app as p4
from innet.rpc.cli import app as certificates
from innet.servers.pbox.cli import app as pbox
from innet.servers.rack.cli import rack_server
from innet.shell.cli import shell
from innet.terminal.app import run
from innet.terminal.options import HELP_ON, PASS_OPTIONS_ON, Version
from innet.terminal.signals import INTERRUPTS

app = typer.Typer(
    no_args_is_help=True,
    context_settings=HELP_ON,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command(context_settings=PASS_OPTIONS_ON)(rack)
app.command()(controller)
app.command()(deploy)
app.command(context_settings=PASS_OPTIONS_ON)(emulate)
app.command()(apply)
app.command()(capture)
app.command()(doctor)
app.command()(top)
app.command()(shell)
app.add_typer(switches.app, name="switch")
app.add_typer(jobs.app, name="job")
app.add_typer(quotas.app, name="quota")
app.add_typer(certificates, name="certificates")
app.add_typer(p4, name="p4")
app.add_typer(model, name="model")
app.add_typer(pbox, name="pbox")
pbox.command()(rack_server)


@app.callback()
def innet(version: Version = False) -> None:
    """Sum gradients in the switch. Start with [b]innet demo[/b]."""


def main() -> None:
    """Run the command."""
    INTERRUPTS.catch()
    run(app)
