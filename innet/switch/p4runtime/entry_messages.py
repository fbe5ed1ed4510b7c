"""TableEntry messages: checks of what a client writes, and the form in which it reads an entry back."""

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.p4runtime.entities import Table, encode
from innet.switch.p4runtime.metering import meter_rates
from innet.switch.p4runtime.refusals import forbidden, invalid, unsupported


def check_content(table: Table, message: p4rt.TableEntry) -> None:
    """Raise Refusal if an entry has parts that an entry of this table cannot have."""
    check_timeout(table, message)
    if message.HasField("counter_data") and not table.layout.direct_counter:
        raise invalid(f"{table.name}: has no direct counter")
    _check_meter(table, message)
    action = table.actions.get(action_id(message))
    if action and not (action.as_default if message.is_default_action else action.in_entries):
        where = "be the default action" if message.is_default_action else "stand in entries"
        raise forbidden(f"{table.name}: {action.name} cannot {where}")


def check_timeout(table: Table, message: p4rt.TableEntry, *, reading: bool = False) -> None:
    """Raise Refusal for an invalid timeout. See "Idle-timeout" in the P4Runtime specification."""
    if message.idle_timeout_ns < 0:
        raise invalid(f"{table.name}: the idle timeout is negative")
    if message.HasField("time_since_last_hit") and not reading:
        raise invalid(f"{table.name}: the time since the last hit cannot be written")
    if not (message.idle_timeout_ns or message.HasField("time_since_last_hit")):
        return
    if not table.ages:
        raise invalid(
            f"{table.name}: idle timeouts need support_timeout in the P4 source of the table"
        )
    if message.is_default_action:
        raise invalid(f"{table.name}: the default entry has no idle timeout")


def action_id(message: p4rt.TableEntry) -> int:
    """Return the P4Runtime id of an entry's action, or 0."""
    return int(message.action.action.action_id)


def set_action(message: p4rt.TableAction, table: Table, number: int, args: tuple[int, ...]) -> None:
    """Set a message to one of the program's own action calls."""
    action = table.action(number)
    message.action.action_id = action.id
    for param, value in zip(action.params, args, strict=True):
        message.action.params.add(param_id=param.id, value=encode(value))


def copied(message: p4rt.TableEntry) -> p4rt.TableEntry:
    """Return a copy of an entry."""
    copy = p4rt.TableEntry()
    copy.CopyFrom(message)
    return copy


def canonical(message: p4rt.TableEntry) -> p4rt.TableEntry:
    """Return an entry as a client can read it back, with all byte strings in canonical form."""
    copy = copied(message)
    copy.ClearField("counter_data")
    for match in copy.match:
        kind = match.WhichOneof("field_match_type")
        shorten(getattr(match, kind))
    kind = copy.action.WhichOneof("type")
    shot = copy.action.action_profile_action_set.action_profile_actions if kind else ()
    actions = [copy.action.action] if kind == "action" else [each.action for each in shot]
    for param in (param for action in actions for param in action.params):
        shorten(param)
    return copy


def idle_message(entry: p4rt.TableEntry) -> p4rt.TableEntry:
    """Return an entry in the form for an idle notification: without its action."""
    message = copied(entry)
    message.ClearField("action")
    return message


def copy_meter(source: p4rt.TableEntry, target: p4rt.TableEntry) -> None:
    """Give an entry the meter configuration of another, or none."""
    target.ClearField("meter_config")
    if source.HasField("meter_config"):
        target.meter_config.CopyFrom(source.meter_config)


def _check_meter(table: Table, message: p4rt.TableEntry) -> None:
    if message.HasField("meter_counter_data"):
        raise unsupported(f"{table.name}: counts of colours are not supported")
    if not message.HasField("meter_config"):
        return
    if not table.layout.direct_meter:
        raise invalid(f"{table.name}: has no direct meter")
    if message.is_default_action:
        raise unsupported(f"{table.name}: a meter of the default entry is not supported")
    meter_rates(message.meter_config)


def shorten(message: object) -> None:
    """Put the byte strings of a match or a parameter into canonical form."""
    for name in ("value", "mask", "low", "high"):
        if hasattr(message, name):
            setattr(message, name, getattr(message, name).lstrip(b"\0") or b"\0")
