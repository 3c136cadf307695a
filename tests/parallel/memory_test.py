#!/usr/bin/env python3
"""The memory table of every rank against what its process takes at its peak: `memory_test.py TUTTI`.

Under mpirun each rank is a process with a table of its own; ranks that are threads are one process, and the sum of their
tables is what it takes.
"""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Large enough for its data to outweigh what libraries take.
LARGE = ["gpt2", "--sequence", "32", "--global-batch", "2", "--micro-batch", "1"]
LAYOUTS = [["--mesh", "tensor=2"], ["--mesh", "pipe=2"], ["--mesh", "data=2", "--zero", "1"],
           ["--mesh", "pipe=2", "--device-memory", "800MB", "--offload-activations", "full"]]
# So small that what is timed before the first step would show; what libraries take is counted for the worst.
SMALL = ["gpt2-tiny", "--sequence", "64", "--global-batch", "4", "--micro-batch", "1"]
TIMED = [["--mesh", "data=1", "--device-memory", "10MiB"], ["--mesh", "data=2", "--device-memory", "10MiB"],
         ["--mesh", "pipe=2", "--trace", "trace.json"]]
ALLOWED = 0.03


def has_mpi(tutti):
    return shutil.which("mpirun") and (Path(tutti).parent / "libtutti_mpi.so").exists()


def memory_of(tutti, model, layout, comm):
    """What the tables say and what was taken, of every process."""
    command = [tutti, "train", *model, *layout, "--comm", comm, "--steps", "2", "--threads", "1", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
    entries = {}
    for line in output.splitlines():
        if line.startswith("{"):
            entries.update(json.loads(line))
    told, taken = entries["summary"]["memory_bytes_of_ranks"], entries["result"]["peak_resident_bytes_of_ranks"]
    return ([sum(told)], taken[:1]) if comm == "threads" else (told, taken)


def main(tutti):
    tutti = str(Path(tutti).resolve())
    failed = 0
    for comm in ["mpi", "threads"] if has_mpi(tutti) else ["threads"]:
        for model, layout in [(LARGE, layout) for layout in LAYOUTS] + [(SMALL, layout) for layout in TIMED]:
            for number, (told, taken) in enumerate(zip(*memory_of(tutti, model, layout, comm), strict=True)):
                off = taken / told - 1
                print(f"{model[0]} {' '.join(layout)} --comm {comm}, process {number}: the tables say {told / 2**20:.1f} MiB, "
                      f"at its peak it has {taken / 2**20:.1f} MiB: {off:+.2%}", flush=True)
                failed += off > ALLOWED or (model is LARGE and off < -ALLOWED)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
