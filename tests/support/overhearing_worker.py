"""A worker on an emulated host, which prints the frames to the controller that others have sent.

The switches should send them to the controller only. The worker listens until the controller has answered
its own heartbeats with `ANSWERS` frames.
"""

import os
import socket
import sys

import numpy as np

import innet

ANSWERS = 12
_EVERYTHING = 0x0003  # ETH_P_ALL
_SOURCE, _DESTINATION = slice(6, 12), slice(0, 6)


def main() -> None:
    """Join, sum with all others, and print how many frames were heard that others sent."""
    controller = socket.inet_aton(os.environ["INNET_CONTROLLER"].partition(":")[0])
    mac = b"\x02\x00" + controller
    kind = socket.htons(_EVERYTHING)
    with innet.join() as agent:
        agent.all_reduce(np.ones(1, np.int32), op="sum")  # all have joined
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, kind) as frames:
            answers = overheard = 0
            while answers < ANSWERS:
                frame, where = frames.recvfrom(1 << 16)
                answers += frame[_SOURCE] == mac and where[2] == socket.PACKET_HOST
                overheard += frame[_DESTINATION] == mac and where[2] == socket.PACKET_OTHERHOST
    sys.stdout.write(f"overheard {overheard}\n")


if __name__ == "__main__":
    main()
