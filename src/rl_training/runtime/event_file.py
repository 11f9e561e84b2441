"""The records of which TensorBoard's event files consist.

TensorBoard has a writer of them, too, but importing it takes longer than a short training.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

_CASTAGNOLI = 0x82F63B78


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)
    return value


_TABLE = tuple(map(_crc_of_byte, range(256)))


def masked_crc32c(data: bytes) -> int:
    """Return the checksum that stands behind a part of a record."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    # A checksum of data that contains checksums is weak, so the format rotates it and adds a constant.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def write_record(file: BinaryIO, data: bytes) -> None:
    """Append a record: its length and its content, each with a checksum."""
    length = struct.pack("<Q", len(data))
    checks = struct.pack("<I", masked_crc32c(length)), struct.pack("<I", masked_crc32c(data))
    file.write(length + checks[0] + data + checks[1])
