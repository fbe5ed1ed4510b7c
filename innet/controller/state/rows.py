"""The parts of the state's rows that are not plain columns, in JSON or in several columns."""

import json
from dataclasses import astuple
from typing import Any

from innet.controller.jobs.events import Path, Resume
from innet.controller.jobs.records import Attachment, Station, SwitchRecord, Uplink
from innet.wire.frames import Address


def switch_record(name: str, address: str, device: int, ports: str, *more: Any) -> SwitchRecord:
    """Return the switch of a row."""
    *service, lanes, uplinks, target, artifact, drained, stations = more
    return SwitchRecord(
        name,
        address,
        device,
        tuple(json.loads(ports)),
        Address(*service),
        lanes,
        tuple(Uplink(*link) for link in json.loads(uplinks)),
        target,
        artifact,
        bool(drained),
        tuple(Station(*each) for each in json.loads(stations)),
    )


def uplinks_text(switch: SwitchRecord) -> str:
    """Return a row's text for the uplinks of a switch."""
    return json.dumps([astuple(link) for link in switch.uplinks])


def stations_text(switch: SwitchRecord) -> str:
    """Return a row's text for the stations of a switch."""
    return json.dumps([astuple(each) for each in switch.stations])


def agreement_text(agreement: Resume | None) -> str:
    """Return a row's text for the workers' agreement, empty without one."""
    return json.dumps(astuple(agreement)) if agreement else ""


def agreement_of(text: str) -> Resume | None:
    """Return the workers' agreement from a row's text, or None without one."""
    if not text:
        return None
    term, path, *others = json.loads(text)
    return Resume(term, Path(path), *others)


def attachment_row(where: Attachment | None) -> tuple[object, ...]:
    """Return the columns for a worker's attachment, None for each without one."""
    return (where.port, *astuple(where.address), where.switch) if where else (None,) * 5


def attachment_of(port: int | None, *where: Any) -> Attachment | None:
    """Return the attachment of these columns, or None without one."""
    *address, switch = where
    return None if port is None else Attachment(port, Address(*address), switch)
