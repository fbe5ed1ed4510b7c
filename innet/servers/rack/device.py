"""The switch of a rack server. It passes the switch's service address on to the parameters."""

from collections.abc import Callable, Sequence
from functools import partial

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc.status import Refusal
from innet.servers.rack.native import Parameters
from innet.switch.engine import Engine
from innet.switch.p4runtime.device import Device
from innet.switch.ports import Port

_SERVICE = "service"
"""The aggregation program's table with the switch's own address, its only key."""


class ServerDevice(Device):
    """A :class:`Device` whose outgoing results pass through the parameters."""

    def __init__(
        self,
        parameters: Parameters,
        ports: Sequence[Port],
        cpu_port_number: int,
        send: Callable[[p4rt.StreamMessageResponse], None],
        cores: int = 1,
    ) -> None:
        load = partial(Engine, egress_hook=parameters.egress_hook, cores=cores)
        super().__init__(ports, cpu_port_number, send, load)
        self._parameters = parameters

    def write(
        self, updates: Sequence[p4rt.Update], atomicity: p4rt.WriteRequest.Atomicity = 0
    ) -> list[Refusal | None]:
        """Write as :meth:`Device.write`, and pass on the service address that came last, or 0."""
        results = super().write(updates, atomicity)
        tables = self.config.p4info.tables if self.config else ()
        service = {each.preamble.id for each in tables if each.preamble.alias == _SERVICE}
        carried_out = zip(updates, results, strict=True)
        written = {each.entity.table_entry.table_id for each, refusal in carried_out if not refusal}
        for table in service & written:
            found, _ = self.read([p4rt.Entity(table_entry={"table_id": table})])
            address = found[-1].table_entry.match[0].exact.value if found else b""
            self._parameters.set_service(int.from_bytes(address, "big"))
        return results
