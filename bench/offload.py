#!/usr/bin/env python3
"""Model data that is four times the fast memory, without a GPU: the fast memory is a bounded arena, homes are in host memory.

    python3 bench/offload.py [--tutti build/tutti] [--layers 8] [--width 512] [--steps 6] [--rounds 3] [--share 0.25]
                             [--disk DIR] [--threads 2]

All variants are run in turns, `rounds` times. Prints a JSON line per run, and a table of medians at the end: the step
against the step with everything in memory, what the computing thread waited for copies, and the bytes copied against
the least that any plan copies.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

from ranks import write_model

VARIANTS = {
    "all in memory": None,
    "planned": [],
    "updates on the device": ["--optimizer-placement", "device"],
    "updates by the host": ["--optimizer-placement", "host"],
    "no prefetch": ["--optimizer-placement", "device", "--prefetch", "off"],
    "lru": ["--optimizer-placement", "device", "--eviction", "lru"],
    "fifo": ["--optimizer-placement", "device", "--eviction", "fifo"],
    "lru, no prefetch": ["--optimizer-placement", "device", "--eviction", "lru", "--prefetch", "off"],
    "fifo, no prefetch": ["--optimizer-placement", "device", "--eviction", "fifo", "--prefetch", "off"],
}


def run(options, arguments, dry=False):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
        command = [options.tutti, "train", *arguments, "--json"] + (["--dry-run"] if dry else ["--metrics", metrics.name])
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        found = {}
        for line in done.stdout.splitlines():
            found.update(json.loads(line))
        if not dry:
            steps = [json.loads(line) for line in open(metrics.name)]
            found["seconds"] = [step["milliseconds"] / 1e3 for step in steps if "milliseconds" in step]
            found["losses"] = [step["loss"] for step in steps if "loss" in step]
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default="build/tutti")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        write_model(model, options.layers, options.width)
        common = [model, "--steps", str(options.steps), "--sequence", str(options.sequence), "--global-batch", str(options.batch),
                  "--threads", str(options.threads)]
        memory = run(options, common, dry=True)["summary"]["memory_bytes"]
        data = sum(memory[row] for row in ("weights", "gradients", "master", "moments"))
        scratch = sum(memory[row] for row in ("activations", "buffers", "workspace"))
        limits = ["--device-memory", str(int(scratch + options.share * data))]
        if options.disk:
            limits += ["--disk", options.disk, "--host-memory", str(data // 4)]
        print(json.dumps({"model_data_bytes": data, "scratch_bytes": scratch, "share": options.share}), flush=True)
        results = {name: [] for name in VARIANTS}
        for round_ in range(options.rounds):
            for name, arguments in VARIANTS.items():
                found = run(options, common + (limits + arguments if arguments is not None else []))
                offload = found["summary"].get("offload", {})
                line = {"variant": name, "round": round_, "step": statistics.median(found["seconds"][1:]),
                        "waited": found["result"]["waited_seconds"] / options.steps, "losses": found["losses"], **offload}
                results[name].append(line)
                print(json.dumps(line), flush=True)
        whole = statistics.median(line["step"] for line in results["all in memory"])
        print("\n| variant | step over all in memory | waited for copies | predicted exposed | copied over least | updates by the host |")
        print("|---|---|---|---|---|---|")
        for name, lines in results.items():
            ratio = statistics.median(line["step"] for line in lines) / whole
            waited = statistics.median(line["waited"] for line in lines)
            last = lines[-1]
            moved = (last["fetched_bytes"] + last["returned_bytes"]) / max(1, last["least_bytes"]) if "least_bytes" in last else 0
            print(f"| {name} | {ratio:.2f} | {1e3 * waited:.0f} ms | {1e3 * last.get('exposed_seconds', 0):.0f} ms | {moved:.2f} | "
                  f"{last.get('updates_at_home', 0)} of {last.get('updates', 0)} |")
            assert all(line["losses"] == results["all in memory"][0]["losses"] for line in lines), name
        print("\nlosses are the same to the last digit in all variants")


if __name__ == "__main__":
    main()
