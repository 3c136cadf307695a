#!/usr/bin/env python3
"""Attacks on runs of tutti: crashes, failing calls, damaged files, killed ranks. Afterwards the run goes on to the same bits.

    chaos.py TUTTI SHIM [SECONDS] [--seed N] [--only NAME] [--short]

The attacks of all scenarios (runs.py, attacks.py) are made in random order until the time is over; --short makes a few of
each kind, always the same. Each that fails is told with the words that make it again. The exit status is 1 if any failed.
"""
import argparse
import collections
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import attacks
from runs import SCENARIOS, Bench, Wrong

SHORT = {"crash": 40, "fail": 60, "memory": 20, "tear": 20, "kill": 8, "full": 2}  # of every scenario that starts quickly
SHORT_PROCESSES = {"crash": 2, "fail": 3, "memory": 1, "tear": 1, "kill": 3, "full": 1}
UNBOUNDED = 100000  # attacks that chance numbers
DEFAULT_SECONDS = 600


def the_bench(tutti, shim, folder):
    return Bench(tutti, shim, Path(tempfile.mkdtemp(prefix="bench-", dir=folder)))


def scenarios_here(tutti):
    has_ranks = shutil.which("mpirun") and (Path(tutti).parent / "libtutti_mpi.so").exists()
    return [scenario for scenario in SCENARIOS if scenario != "processes" or has_ranks]


def chosen_attacks(tutti, shim, folder, chance, short):
    """All names by (scenario, kind), and those to make, in their order."""
    bench, every = the_bench(tutti, shim, folder), {}
    for scenario in scenarios_here(tutti):
        for kind, names in attacks.names_of(bench, scenario, UNBOUNDED, UNBOUNDED).items():
            chance.shuffle(names)
            every[scenario, kind] = names
    if short:
        wanted = [name for (scenario, kind), names in every.items()
                  for name in names[:(SHORT_PROCESSES if scenario == "processes" else SHORT)[kind]]]
        chance.shuffle(wanted)
        return every, wanted
    # One of each kind after the other, so that few of a large kind do not keep the others waiting.
    wanted, rest = [], [list(reversed(names)) for names in every.values() if names]
    while rest:
        wanted += [names.pop() for names in rest]
        rest = [names for names in rest if names]
    return every, wanted


def work(tutti, shim, folder, seed, tasks, results, end):
    """One process: makes attacks until there are none, or the time is over."""
    bench = the_bench(tutti, shim, folder)
    while (name := tasks.get()) is not None and time.time() < end:
        try:
            attacks.make(bench, name, seed)
            results.put((name, None))
        except Wrong as wrong:
            results.put((name, str(wrong)))
        except Exception as bug:  # of these tests
            results.put((name, f"{type(bug).__name__}: {bug}"))
    results.put(None)


def make_all(tutti, shim, folder, seed, wanted, end, report):
    """Calls report(name, complaint) for each attack as it is over. Those on processes, which mostly wait until a lost rank
    is noticed, are made beside the others."""
    results, lanes, processes = multiprocessing.Queue(), [], []
    cores = os.cpu_count() or 1
    for waits, workers in (False, cores), (True, 2 * cores):
        tasks = multiprocessing.Queue()
        left = iter([name for name in wanted if name.startswith("processes/") == waits])
        lanes.append((tasks, left))
        for _ in range(2 * workers):
            tasks.put(next(left, None))
        processes += [multiprocessing.Process(target=work, args=(tutti, shim, folder, seed, tasks, results, end))
                      for _ in range(workers)]
    for process in processes:
        process.start()
    working = len(processes)
    while working:
        result = results.get()
        if result is None:
            working -= 1
            continue
        report(*result)
        tasks, left = lanes[result[0].startswith("processes/")]
        tasks.put(next(left, None) if time.time() < end else None)
    for process in processes:
        process.join()


class Tally:
    """Counts what was made, and tells of what failed."""

    def __init__(self, seed, again):
        self.made, self.failed = collections.Counter(), []
        self.seed, self.again, self.start, self.told = seed, again, time.monotonic(), 0.0

    def __call__(self, name, complaint):
        scenario, kind, *_ = name.split("/")
        self.made[scenario, kind] += 1
        if complaint:
            self.failed.append(name)
            print(f"FAILED {name}: {complaint}\n  again: {self.again} --seed {self.seed} --only {name}", flush=True)
        seconds = time.monotonic() - self.start
        if seconds - self.told >= 30:
            self.told = seconds
            print(f"{seconds:.0f} s: {sum(self.made.values())} attacks, {len(self.failed)} failed", flush=True)

    def summary(self, every):
        rows = [["", "attacks", "of"]]
        for scenario, kind in sorted(self.made):
            names = len(every.get((scenario, kind), []))
            rows.append([f"{scenario} {kind}", f"{self.made[scenario, kind]}",
                         "chance" if kind in ("tear", "kill") else f"{names}"])
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])])
                 for row in rows]
        return "\n".join(lines + [f"{sum(self.made.values())} attacks in {time.monotonic() - self.start:.0f} s, "
                                  f"{len(self.failed)} failed"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tutti")
    parser.add_argument("shim")
    parser.add_argument("seconds", nargs="?", type=float, default=DEFAULT_SECONDS)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", metavar="NAME", help="one attack, as it was told")
    parser.add_argument("--short", action="store_true", help="a few attacks of each kind, always the same")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else 1 if options.short else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    tally = Tally(seed, "./dev chaos")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # what is synced there is not waited for
    with tempfile.TemporaryDirectory(prefix="tutti-chaos-", dir=memory) as folder:
        if options.only:
            every, wanted, end = {}, [options.only], float("inf")
        else:
            every, wanted = chosen_attacks(options.tutti, options.shim, folder, random.Random(seed), options.short)
            end = float("inf") if options.short else time.time() + options.seconds
        make_all(options.tutti, options.shim, folder, seed, wanted, end, tally)
    print(tally.summary(every))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
