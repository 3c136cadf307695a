#!/usr/bin/env python3
"""A layout gives the same bits every time, and whether its ranks are threads or processes: `same_bits_test.py TUTTI`."""
import concurrent.futures
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 6
LAYOUTS = {"pipe": ["--mesh", "pipe=4", "--schedule", "zb-1p"], "tensor": ["--mesh", "tensor=2,pipe=2"],
           "data": ["--mesh", "data=4", "--zero", "2"]}
SKIPPED = 77


def run(tutti, folder, layout, comm):
    """Trains, and returns losses and norms as the program wrote them: equal texts are equal bits."""
    metrics = folder.with_suffix(".jsonl")
    command = [tutti, "train", "gpt2-tiny", *LAYOUTS[layout], "--comm", comm, "--steps", str(STEPS), "--sequence", "32",
               "--global-batch", "8", "--micro-batch", "1", "--threads", "1", "--no-tensorboard", "--output", str(folder),
               "--metrics", str(metrics), "--json"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [(line["step"], repr(line["loss"]), repr(line["grad_norm"])) for line in lines]


def main(tutti):
    with_mpi = shutil.which("mpirun") and (Path(tutti).parent / "libtutti_mpi.so").exists()
    ways = {"once": "threads", "again": "threads", **({"processes": "mpi"} if with_mpi else {})}
    failed = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        runs = {(layout, way): pool.submit(run, tutti, folder / f"{layout}-{way}", layout, comm)
                for layout in LAYOUTS for way, comm in ways.items()}
        for layout in LAYOUTS:
            expected = runs[layout, "once"].result()
            for way in list(ways)[1:]:
                same = runs[layout, way].result() == expected and [step for step, _, _ in expected] == list(range(1, STEPS + 1))
                for file in ["model/model.safetensors", f"checkpoints/step-{STEPS:08}/state.safetensors"]:
                    same &= filecmp.cmp(folder / f"{layout}-once" / file, folder / f"{layout}-{way}" / file, shallow=False)
                print(f"{' '.join(LAYOUTS[layout])}, {way}: {'the same bits' if same else 'OTHER BITS'}", flush=True)
                failed += not same
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
