"""The second of two emulated hosts sends four buffers of 50 datagrams each to the first.

The kernel cuts a buffer into datagrams of 1000 bytes, or leaves this to the link. Each host ends when the
first has all datagrams.
"""

import os
import socket

from innet.machine.sockets import UDP_GRO, UDP_SEGMENT

PORT, SIZE, COUNT, BUFFERS = 7777, 1000, 50, 4

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.settimeout(120)
    if os.environ["RANK"] == "0":
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        sock.bind(("", PORT))
        missing = SIZE * COUNT * BUFFERS
        while missing > 0:
            data, sender = sock.recvfrom(1 << 16)
            if len(data) == 1:
                sock.sendto(b"?", sender)  # is there
            else:
                missing -= len(data)
        sock.sendto(b"!", sender)
    else:
        sock.connect((os.environ["MASTER_ADDR"], PORT))
        sock.settimeout(0.2)
        answer = b""
        while not answer:
            try:
                sock.send(b"?")
                answer = sock.recv(1)
            except (TimeoutError, ConnectionRefusedError):
                continue
        sock.settimeout(120)
        sock.setsockopt(socket.SOL_UDP, UDP_SEGMENT, SIZE)
        for _ in range(BUFFERS):
            sock.send(bytes(SIZE * COUNT))
        while sock.recv(1) != b"!":
            pass
