"""Forks in a process that talks to the controller all the time."""

import os
import subprocess
import sys
import threading

from innet.controller.server import ControllerServer
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

FORKS = 200


def test_a_fork_during_calls_does_not_abort_the_child():
    # In a process of its own: here, threads of other tests would be forked, too.
    subprocess.run([sys.executable, __file__], timeout=200, check=True)


def main() -> int:
    server = ControllerServer("127.0.0.1:0")
    channel, stub = connect(f"127.0.0.1:{server.port}")
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            stub.ListJobs(pb.ListJobsRequest())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    failed = 0
    for _ in range(FORKS):
        if not (child := os.fork()):
            os._exit(0)
        failed += os.waitpid(child, 0)[1] != 0
    over.set()
    for thread in threads:
        thread.join()
    channel.close()
    server.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
