"""Checksums that are computed bit by bit."""


def crc16(data: bytes) -> int:
    """Return the CRC-16/ARC, computed bit by bit."""
    remainder = 0
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0xA001 if remainder & 1 else 0)
    return remainder
