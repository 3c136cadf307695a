"""What the shim wrote down of a run: its calls, in order (watch.h says how they look in the file)."""
import collections
import os
from dataclasses import dataclass
from pathlib import Path

# Calls that change what is on disk, or when it is there for good.
CHANGES = {"open", "write", "fsync", "rename", "unlink", "rmdir", "mkdir", "truncate", "allocate"}


@dataclass(frozen=True)
class Record:
    call: str
    rank: int  # -1: a process that is no rank of MPI
    descriptor: int
    offset: int
    payload: bytes

    def counts(self):
        """Whether a model of the disk has to know of it."""
        return self.call in CHANGES and bool(self.payload or self.descriptor >= 0)

    def changes(self):
        """Whether a crash right after it is another than right before."""
        return self.counts() and (self.call != "open" or bool(self.offset & (os.O_CREAT | os.O_TRUNC)))


def read_journal(path):
    data, records, place = Path(path).read_bytes(), [], 0
    while place < len(data):
        end = data.index(b"\n", place)
        call, *numbers = data[place:end].decode().split(" ")
        rank, descriptor, offset, length = map(int, numbers)
        place = end + 1 + length + 1
        records.append(Record(call, rank, descriptor, offset, data[end + 1:place - 1]))
    return records


def counts(records):
    """How often each rank made each call; an allocation has no record of its own, but one with their number."""
    counted = collections.Counter()
    for record in records:
        counted[record.rank, record.call] += record.offset if record.call in ("memory", "buffer") else 1
    return counted
