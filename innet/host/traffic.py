"""The counts of what a worker has sent and received."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from innet.rpc import innet_pb2 as pb

if TYPE_CHECKING:
    from innet.host.rounds import RoundOutcome


@dataclass
class Traffic:
    """The packets and bytes sent and received so far; bytes are of whole frames without FCS.

    A frame has `frame_bytes`, or `bare_frame_bytes` without lanes. `corrupted` packets were received
    and dropped. `chunks` are those with a result.
    """

    frame_bytes: int
    bare_frame_bytes: int
    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retransmissions: int = 0
    chunks: int = 0
    corrupted: int = 0

    def count_sent(self, packets: int, bare: int, retransmissions: int) -> None:
        """Count sent packets, of which `bare` have no lanes and `retransmissions` were sent before."""
        self.packets_sent += packets
        self.bytes_sent += self._bytes(packets, bare)
        self.retransmissions += retransmissions

    def count_round(self, round_: "RoundOutcome") -> None:
        """Count the packets of an I/O round."""
        if round_.sent:
            self.count_sent(round_.sent, round_.bare_sent, round_.repetitions)
        self.packets_received += round_.received
        self.bytes_received += self._bytes(round_.received, round_.bare_received)

    def fill(self, progress: pb.Progress) -> None:
        """Fill in these counts, as heartbeats report them to the controller."""
        progress.packets_sent = self.packets_sent
        progress.packets_received = self.packets_received
        progress.bytes_sent = self.bytes_sent
        progress.bytes_received = self.bytes_received
        progress.retransmissions = self.retransmissions
        progress.chunks_done = self.chunks
        progress.corrupted = self.corrupted

    def _bytes(self, packets: int, bare: int) -> int:
        return (packets - bare) * self.frame_bytes + bare * self.bare_frame_bytes
