"""Records of switches and jobs, as a store keeps them."""

from innet.controller.jobs.records import (
    JobRecord,
    JobSpec,
    SlotRange,
    SwitchRecord,
    Uplink,
)
from innet.wire.frames import Address

ADDRESS = Address("02:00:00:00:00:01", "10.0.0.1", 4000)


SWITCH = SwitchRecord("tor", "127.0.0.1:9559", 3, (1, 2, 7), ADDRESS, 64)


RACK = SwitchRecord("rack", "127.0.0.1:9560", 3, (1, 2), ADDRESS, 64, (Uplink("tor", 2, 7),))


CHIP = SwitchRecord("chip", "10.0.0.9:9339", 1, (128,), ADDRESS, 64, (), "tofino", "/srv/chip")


SPEC = JobSpec("job", "tor", 1, 4, 3, 2, 32, 3600.0, b"\0\xff", 1)


JOB = JobRecord(SPEC, 77, SlotRange(0, 0, 32), True, None, (), ())
