"""The attacks, each with a name by which it can be made again: SCENARIO/KIND/...

    one/crash/153/lost            the machine stops after 153 calls, and what was not synced is lost
    one/fail/write/17/ENOSPC/on   the 17th write and all after it fail
    one/memory/4000               the 4000th allocation and all after it fail
    one/fail/buffer/40/ENOMEM/once  the 40th large allocation fails, and small ones do not
    one/tear/12                   a file is damaged between two runs; 12 says which, where and how
    processes/kill/7              ranks are killed, or the run is asked to stop; 7 says which, how and when
    one/full/errors               what it says cannot be written
"""
import errno
import os
import random
import re
import signal
import time

import disk
from journal import counts
from runs import ALLOWED, SCENARIOS, Wrong, check_end, check_resumed, expect
from disk import Disk, read_tree, write_tree

KILLED = -signal.SIGKILL

# What a crash leaves: all that was done; that, with half of the last write; what was synced; or some of the rest.
LEFT = ["all", "half", "lost", "some"]

# How calls fail in the world. `short`: only half of the bytes; `kill` and `half`: the process dies there.
WAYS = {
    "open": ["EIO", "EMFILE", "EACCES", "ESTALE", "ENOSPC", "kill"],
    "read": ["EIO", "ESTALE", "EINTR", "short", "kill"],
    "write": ["ENOSPC", "EIO", "EINTR", "EDQUOT", "short", "kill", "half"],
    "fsync": ["EIO", "ENOSPC", "kill"],
    "rename": ["EIO", "ENOSPC", "EACCES", "kill"],
    "unlink": ["EIO", "EACCES", "kill"],
    "rmdir": ["EIO", "EACCES", "kill"],
    "mkdir": ["ENOSPC", "EIO", "EACCES", "kill"],
    "truncate": ["ENOSPC", "EIO", "kill"],
    "allocate": ["ENOSPC", "EIO", "EOPNOTSUPP", "kill"],
    "lock": ["ENOLCK", "EIO", "EINTR"],
    "close": ["EIO", "kill"],
    "list": ["EIO", "EMFILE", "EACCES"],
    "entry": ["EIO", "ESTALE"],
    "stat": ["EIO", "ESTALE", "EACCES", "ELOOP"],
    "access": ["EIO", "EACCES"],
    "map": ["ENOMEM"],
    "buffer": ["ENOMEM"],
    "thread": ["EAGAIN"],
}
TIMES = ["once", "on"]
HARMLESS = {"EINTR", "short", "EOPNOTSUPP", "ENOLCK"}  # whoever calls goes on


def names_of(bench, scenario, tears, kills):
    """All attacks on a scenario but those that only chance numbers; of these so many."""
    recording = bench.record(scenario)
    found = {"crash": [f"{scenario}/crash/{number}/{left}" for number, record in enumerate(recording.records, 1)
                       if record.changes() for left in LEFT if left != "half" or record.call == "write"],
             "tear": [f"{scenario}/tear/{number}" for number in range(tears)],
             "kill": [f"{scenario}/kill/{number}" for number in range(kills)], "fail": [], "memory": [],
             "full": [f"{scenario}/full/{stream}" for stream in ("output", "errors")]}
    for (rank, call), count in sorted(counts(recording.records).items()):
        whose = f"/{rank}" if rank >= 0 else ""
        for number in range(1, count + 1):
            for way in WAYS.get(call, []):
                found["fail"] += [f"{scenario}/fail{whose}/{call}/{number}/{way}/{times}" for times in times_of(way)]
            if call == "memory":
                found["memory"].append(f"{scenario}/memory{whose}/{number}")
    return found


def times_of(way):
    return ["once"] if way in ("kill", "half", "EINTR") else TIMES


def make(bench, name, seed):
    """Makes the attack; raises Wrong if the program did other than it should have."""
    scenario, kind, *rest = name.split("/")
    {"crash": crash, "fail": fail, "memory": memory, "tear": tear, "kill": kill, "full": full}[kind](bench, scenario, rest, f"{seed} {name}")


# The machine stops: the folder is built as it would be found, and the run goes on from there.

def crash(bench, scenario, rest, seed):
    count, left = int(rest[0]), rest[1]
    tree, promised = after_crash(bench, scenario, count, left, seed)
    whole = max(bench.whole_steps(scenario, tree), default=0)
    expect(whole >= promised, "of the checkpoint of step", promised, "which was saved, not all is left; whole is", whole)
    check_resumed(bench, scenario, tree, whole_metrics=left == "all")


def after_crash(bench, scenario, count, left, seed):
    """What is there after so many calls, and the newest step that was saved for good."""
    recording = bench.record(scenario)
    write_tree(bench.root, recording.before)
    there = Disk(bench.root)
    promised, renamed = max(bench.whole_steps(scenario, recording.before), default=0), None
    for number, record in enumerate(recording.records[:count], 1):
        if not record.counts():
            continue
        if number == count and left == "half" and record.call == "write":
            record = type(record)(record.call, record.rank, record.descriptor, record.offset,
                                  record.payload[:len(record.payload) // 2])
        there.apply(record)
        saved = re.search(rb"/checkpoints/step-(\d+)$", record.payload) if record.call == "rename" else None
        if saved:
            renamed = int(saved[1])
        elif record.call == "fsync" and renamed is not None:  # of the folder; the next one after the rename
            promised, renamed = renamed, None
    keeps = {"all": disk.keep_all, "half": disk.keep_all, "lost": disk.keep_none, "some": disk.keep_some(seed)}[left]
    return there.tree(keeps), promised


# A call fails, or the process dies in it.

def fail(bench, scenario, rest, seed):
    rank = int(rest.pop(0)) if rest[0].isdigit() else None
    call, number, way, times = rest
    action = str(getattr(errno, way)) if way.startswith("E") else way
    strike(bench, scenario, f"{call} {number} {action} {times}", rank,
           {0} if way in HARMLESS else {KILLED, 75} if way in ("kill", "half") else ALLOWED)


def memory(bench, scenario, rest, seed):
    rank = int(rest.pop(0)) if len(rest) == 2 else None
    strike(bench, scenario, f"memory {rest[0]} {errno.ENOMEM} on", rank, ALLOWED)


def strike(bench, scenario, attack, rank, allowed):
    recording = bench.record(scenario)
    write_tree(bench.root, recording.before)
    more = ["--resume"] if SCENARIOS[scenario][1] else []
    end = bench.run(bench.words(scenario, *more), attack=attack, rank=rank)
    check_end(end, allowed)
    tree = read_tree(bench.root)
    before = max(bench.whole_steps(scenario, recording.before), default=0)
    whole = max(bench.whole_steps(scenario, tree), default=0)
    expect(whole >= before, "it lost the checkpoint of step", before, "and ended with", end.shown())
    if end.status == 0:
        expect_whole_model(recording, tree, end)
    try:
        check_resumed(bench, scenario, tree, whole_metrics=False)
    except Wrong as wrong:
        raise Wrong(f"after it ended with {end.shown()}, resumed: {wrong}") from None


def expect_whole_model(recording, tree, end):
    for where in recording.after:
        if where.startswith("run/model/"):
            expect(tree.get(where) == recording.after[where], where, "is not that of the run in peace, and it ended with", end.shown())


# A file is damaged while nothing runs.

def tear(bench, scenario, rest, seed):
    chance = random.Random(seed)
    recording = bench.record(scenario)
    count = chance.randrange(len(recording.records)) + 1
    tree, _ = after_crash(bench, scenario, count, "all", seed)
    files = sorted(where for where in tree if tree[where] is not None and where.startswith("run/"))
    damaged = {}
    for where in chance.sample(files, min(len(files), chance.choice([1, 1, 1, 2, 3]))):
        damaged[where] = damage(tree, where, chance)
    try:
        check_resumed(bench, scenario, tree, whole_metrics=False, damaged=damaged)
    except Wrong as wrong:
        raise Wrong(f"after {count} calls, with {damaged}: {wrong}") from None


def damage(tree, where, chance):
    data = bytearray(tree[where] or b"")
    way = chance.choice(["cut", "flip", "zero", "empty", "lose", "noise"])
    place = chance.randrange(len(data)) if data else 0
    if way == "cut":
        del data[place:]
    elif way == "flip" and data:
        data[place] ^= 1 << chance.randrange(8)
    elif way == "zero":
        data[place:place + 4096] = bytes(len(data[place:place + 4096]))
    elif way == "empty":
        data.clear()
    elif way == "noise":
        data[place:place + 64] = chance.randbytes(len(data[place:place + 64]))
    if way == "lose":
        tree.pop(where, None)
    else:
        tree[where] = bytes(data)
    return f"{way} at {place}"


# Processes are killed at any moment, or asked to stop.

def kill(bench, scenario, rest, seed):
    chance = random.Random(seed)
    recording = bench.record(scenario)
    write_tree(bench.root, recording.before)
    more = ["--resume"] if SCENARIOS[scenario][1] else []
    moment = chance.uniform(0, 2 if scenario == "processes" else 0.3)
    how = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    rank = chance.choice([None, 0, 1]) if scenario == "processes" and how == signal.SIGKILL else None

    def at_once(process):
        time.sleep(moment)
        found = bench.processes() if how == signal.SIGKILL else {process.pid: None}
        for one, of in found.items():
            if rank is None or of == rank:
                send(one, how)

    end = bench.run(bench.words(scenario, *more), strike=at_once)
    check_end(end, {0, 75, -how, 128 + how})
    try:
        check_resumed(bench, scenario, read_tree(bench.root))
    except Wrong as wrong:
        raise Wrong(f"{how.name} after {moment:.3f} s, then {end.shown()}, resumed: {wrong}") from None


def send(process, how):
    try:
        os.kill(process, how)
    except ProcessLookupError:
        pass


# Nothing can be written to a stream.

def full(bench, scenario, rest, seed):
    recording = bench.record(scenario)
    write_tree(bench.root, recording.before)
    more = ["--resume"] if SCENARIOS[scenario][1] else []
    end = bench.run(bench.words(scenario, *more), **{rest[0]: "/dev/full"})
    expect(end.status in ALLOWED, "it ended with", end.shown())
    check_resumed(bench, scenario, read_tree(bench.root))
