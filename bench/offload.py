#!/usr/bin/env python3
"""Model data that is four times the memory it may use, without a GPU: that is a bounded arena, homes are in host memory.

    python3 bench/offload.py [--tutti build/tutti] [--layers 8] [--width 512] [--steps 6] [--rounds 3] [--share 0.25]
                             [--disk DIR] [--threads 2] [--only NAME]

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

CLIPPED, UNCLIPPED = "all in memory", "all in memory, no clipping"
VARIANTS = {
    CLIPPED: None,
    "planned": [],
    "updates on the device": ["--optimizer-placement", "device"],
    "updates on the device, at the end": ["--optimizer-placement", "device", "--updates", "end"],
    "updates on the device, in the next step": ["--optimizer-placement", "device", "--updates", "next"],
    "updates by the host": ["--optimizer-placement", "host"],
    "no prefetch": ["--optimizer-placement", "device", "--updates", "end", "--prefetch", "off"],
    "lru": ["--optimizer-placement", "device", "--updates", "end", "--eviction", "lru"],
    "fifo": ["--optimizer-placement", "device", "--updates", "end", "--eviction", "fifo"],
    "lru, no prefetch": ["--optimizer-placement", "device", "--updates", "end", "--eviction", "lru", "--prefetch", "off"],
    "fifo, no prefetch": ["--optimizer-placement", "device", "--updates", "end", "--eviction", "fifo", "--prefetch", "off"],
    # What the backward needs may leave as well; then half of it is taken off what the device may hold.
    "activations away": ["--offload-activations", "full"],
    "activations away, half of their memory": ["--offload-activations", "full", "--half"],
    UNCLIPPED: None,
    "no clipping, updates at the end": ["--clip", "0", "--optimizer-placement", "device", "--updates", "end"],
    "no clipping, updates in the backward": ["--clip", "0", "--optimizer-placement", "device"],
    "no clipping, by the host at the end": ["--clip", "0", "--optimizer-placement", "host", "--updates", "end"],
    "no clipping, by the host in the backward": ["--clip", "0", "--optimizer-placement", "host"],
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
    parser.add_argument("--only", help="variants with this in their name, and everything in memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        write_model(model, options.layers, options.width)
        common = [model, "--steps", str(options.steps), "--sequence", str(options.sequence), "--global-batch", str(options.batch),
                  "--threads", str(options.threads)]
        memory = run(options, common, dry=True)["summary"]["memory_bytes"]
        data = sum(memory[row] for row in ("weights", "gradients", "master", "moments"))
        scratch = sum(memory[row] for row in ("activations", "buffers", "workspace"))
        device = int(scratch + options.share * data)

        def limits_of(arguments):
            half = memory["activations"] // 2 if "--half" in arguments else 0
            homes = ["--disk", options.disk, "--host-memory", str(data // 4)] if options.disk else []
            return ["--device-memory", str(device - half), *homes, *(one for one in arguments if one != "--half")]

        print(json.dumps({"model_data_bytes": data, "scratch_bytes": scratch, "share": options.share}), flush=True)
        chosen = {name: arguments for name, arguments in VARIANTS.items() if not options.only or options.only in name or not arguments}
        results = {name: [] for name in chosen}
        for round_ in range(options.rounds):
            for name, arguments in chosen.items():
                whole = ["--clip", "0"] if name == UNCLIPPED else []
                found = run(options, common + (whole if arguments is None else limits_of(arguments)))
                offload = found["summary"].get("offload", {})
                line = {"variant": name, "round": round_, "step": statistics.median(found["seconds"][1:]),
                        "waited": found["result"]["waited_seconds"] / options.steps, "losses": found["losses"], **offload}
                results[name].append(line)
                print(json.dumps(line), flush=True)
        print("\n| variant | step over all in memory | waited for copies | predicted exposed | copied | over least | updates by the host |")
        print("|---|---|---|---|---|---|---|")
        for name, lines in results.items():
            whole = results[UNCLIPPED if name.startswith("no clipping") else CLIPPED]
            ratio = statistics.median(line["step"] for line in lines) / statistics.median(line["step"] for line in whole)
            waited = statistics.median(line["waited"] for line in lines)
            last = lines[-1]
            moved = last.get("fetched_bytes", 0) + last.get("returned_bytes", 0)
            print(f"| {name} | {ratio:.2f} | {1e3 * waited:.0f} ms | {1e3 * last.get('exposed_seconds', 0):.0f} ms | {moved / 1e6:.0f} MB | "
                  f"{moved / max(1, last.get('least_bytes', 0)):.2f} | {last.get('updates_at_home', 0)} of {last.get('updates', 0)} |")
            assert name == UNCLIPPED or all(line["losses"] == whole[0]["losses"] for line in lines), name
        print("\nlosses are the same to the last digit in all variants")


if __name__ == "__main__":
    main()
