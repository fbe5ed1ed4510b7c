"""The switch of a rack server. It passes the switch's service address on to the parameters."""

from collections.abc import Sequence
from typing import Any

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc.status import Refusal
from innet.servers.rack.native import Parameters
from innet.switch.p4runtime.device import Device

_SERVICE = "service"
"""The aggregation program's table with the switch's own address, its only key."""


class ServerDevice(Device):
    """A :class:`Device` whose outgoing results pass through the parameters."""

    def __init__(self, parameters: Parameters, *device: Any, cores: int = 1) -> None:
        super().__init__(*device, egress_hook=parameters.egress_hook, cores=cores)
        self._parameters = parameters
        self._served = 0

    def write(
        self, updates: Sequence[p4rt.Update], atomicity: p4rt.WriteRequest.Atomicity = 0
    ) -> list[Refusal | None]:
        """Write as :meth:`Device.write`, and pass on a new service address."""
        results = super().write(updates, atomicity)
        tables = self.config.p4info.tables if self.config else ()
        service = {each.preamble.id for each in tables if each.preamble.alias == _SERVICE}
        for update, refusal in zip(updates, results, strict=True):
            entry = update.entity.table_entry
            if not refusal and entry.table_id in service:
                address = _address(entry)
                if update.type != p4rt.Update.DELETE:
                    self._serve(address)
                elif address == self._served:
                    found, _ = self.read([p4rt.Entity(table_entry={"table_id": entry.table_id})])
                    self._serve(_address(found[0].table_entry) if found else 0)
        return results

    def _serve(self, address: int) -> None:
        self._served = address
        self._parameters.serve(address)


def _address(entry: p4rt.TableEntry) -> int:
    return int.from_bytes(entry.match[0].exact.value, "big")
