#!/usr/bin/env python3
"""The memory table against what a rank under mpirun takes at its peak: `memory_test.py TUTTI`."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

MESHES = ["tensor=2", "pipe=2"]
ALLOWED = 0.03
SKIPPED = 77


def main(tutti):
    if not shutil.which("mpirun") or not (Path(tutti).parent / "libtutti_mpi.so").exists():
        print("skipped: there is no mpirun, or no plug-in for MPI")
        return SKIPPED
    failed = 0
    for mesh in MESHES:
        # Large enough for its data to outweigh what libraries take.
        command = [tutti, "train", "gpt2", "--ranks", "2", "--mesh", mesh, "--steps", "2", "--sequence", "32",
                   "--global-batch", "2", "--micro-batch", "1", "--threads", "1", "--json"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        entries = {}
        for line in output.splitlines():
            if line.startswith("{"):
                entries.update(json.loads(line))
        told, taken = entries["summary"]["memory_bytes"]["total"], entries["result"]["peak_resident_bytes"]
        off = taken / told - 1
        print(f"{mesh}: the table says {told / 2**20:.1f} MiB, at its peak rank 0 has {taken / 2**20:.1f} MiB: {off:+.2%}")
        failed += abs(off) > ALLOWED
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
