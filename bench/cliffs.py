#!/usr/bin/env python3
"""Looks for cliffs: random training setups, Tutti beside PyTorch, the worst ratio first.

    python3 bench/cliffs.py --seed 7 --draws 24 --results cliffs.jsonl [--seconds 500] [--tutti build/tutti]
    python3 bench/cliffs.py --results cliffs.jsonl --table          # of what was done so far

A seed draws a family, widths, heads, head sizes, depth, vocabulary, sequence, batch, dropout, windows and the number
format, each draw by itself: it does not depend on those before it. Draws that would not fit into the GPU, or would take
seconds a step, are made smaller by a formula before anything runs. Each is then run by Tutti and by PyTorch
(Transformers' model of the same config.json, torch.compile, sdpa, fused AdamW; eager where it does not compile), one
after the other, in the same number format, with random tokens.

What is done goes to the results file, a JSON line per draw. Another call goes on with the first draw that is not there,
so that small pieces of GPU time add up; --seconds says how long a call may take.
"""
import argparse
import array
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from random_setups import GIB, config_of, draw_setup, in_words

HERE = os.path.dirname(os.path.abspath(__file__))


def write_tokens(path, shape):
    """A safetensors file of random ids for two steps; targets are the ids themselves, as in the other program."""
    draw = random.Random(0)
    size = [2, shape["batch"], shape["sequence"]]
    ids = array.array("q", (draw.randrange(2, shape["vocabulary"]) for _ in range(math.prod(size)))).tobytes()
    header = json.dumps({
        "input_ids": {"dtype": "I64", "shape": size, "data_offsets": [0, len(ids)]},
        "targets": {"dtype": "I64", "shape": size, "data_offsets": [len(ids), 2 * len(ids)]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + ids + ids)


def finish(command, seconds):
    """What a program said on its two outputs and whether it ended well; an error in words where it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "", "", f"not done within {seconds:.0f} s"
    if done.returncode == 0:
        return done.stdout, done.stderr, None
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return done.stdout, done.stderr, (said[-1] if said else f"ended with status {done.returncode}")[:400]


def attention_of(summary, warnings):
    """What Tutti says of the attention that runs: in its summary, among the decisions, the timed kernels and warnings."""
    said = [summary["attention"]] if "attention" in summary else []
    said += [text for text in summary.get("decided", []) if "attention" in text]
    for kernels in summary.get("plan", {}).get("timed_kernels", {}).values():
        said += [f"{key}: {value}" for key, value in kernels.items() if "attention" in key]
    said += [line.strip() for line in warnings.splitlines() if "attention" in line]
    return "; ".join(str(one) for one in dict.fromkeys(map(str, said)))


def run_tutti(options, shape, folder, seconds):
    metrics, tokens = os.path.join(folder, "metrics.jsonl"), os.path.join(folder, "tokens.safetensors")
    write_tokens(tokens, shape)
    narrow = ["--master", "bf16", "--moments", "bf16"] if shape["dtype"] == "bf16" else []
    output, warnings, error = finish(
        [options.tutti, "train", folder, "--from-scratch", "--device", options.device, "--dtype", shape["dtype"], "--data",
         tokens, "--steps", str(options.steps), "--micro-batch", str(shape["batch"]), "--lr", "1e-4", "--metrics", metrics,
         "--json", *narrow], seconds)
    found = {}
    for line in output.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    attention = attention_of(found.get("summary", {}), warnings)
    if error:
        return {"error": error, "attention": attention}
    with open(metrics) as lines:
        speeds = [json.loads(line)["tokens_per_second"] for line in lines]
    return {"tokens_per_second": round(statistics.median(speeds[min(4, len(speeds) - 1):])), "attention": attention,
            "device_gib": round(found["result"].get("device_memory_bytes", 0) / GIB, 2)}


def run_torch(options, shape, folder, seconds):
    output, _, error = finish([options.python, os.path.join(HERE, "gpu_torch.py"), folder, str(shape["batch"]),
                               str(shape["sequence"]), "--dtype", shape["dtype"], "--steps", "8", "--or-eager"], seconds)
    if error:
        return {"error": error}
    return json.loads(output.strip().splitlines()[-1])


def run_draw(options, shape, seconds):
    """Both programs, one after the other; half of the time for each."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config_of(shape), file)
        line = {"tutti": run_tutti(options, shape, folder, seconds / 2),
                "torch": run_torch(options, shape, folder, seconds / 2)}
    line["ratio"] = ratio_of(line)
    return line


def ratio_of(line):
    speeds = [line[program].get("tokens_per_second") for program in ("tutti", "torch")]
    return round(speeds[0] / speeds[1], 3) if all(speeds) else None


def read_results(path):
    """The lines of finished draws. A last line that was cut off is taken away, and its draw is done again."""
    if not path or not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        text = file.read()
    whole = text[:text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        os.truncate(path, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def first_missing(results, seed, draws):
    done = {line["number"] for line in results if line["seed"] == seed}
    return next((number for number in range(draws) if number not in done), None)


def search(options, run=run_draw, clock=time.monotonic):
    """Runs draws until all are done or the time is up. A draw begins only while the time that is left is what the
    longest one took so far, or a minute; one that the end of the time cut short is left to the next call."""
    begin, longest = clock(), 60.0
    results = read_results(options.results)
    while (number := first_missing(results, options.seed, options.draws)) is not None:
        left = options.seconds - (clock() - begin)
        if left < longest:
            break
        shape = draw_setup(options.seed, number, options.memory * GIB)
        print(f"draw {number} of seed {options.seed}: {in_words(shape)}", file=sys.stderr, flush=True)
        begun = clock()
        limit = min(options.most, left)
        line = {"seed": options.seed, "number": number, "shape": shape, **run(options, shape, limit)}
        if limit < options.most and any("not done within" in line[one].get("error", "") for one in ("tutti", "torch")):
            break
        longest = max(longest, clock() - begun)
        results.append(line)
        with open(options.results, "a") as file:
            file.write(json.dumps(line) + "\n")
    return results


def table_of(results):
    """What Tutti did not run first, then the worst ratio; last what PyTorch could not run."""
    def order(line):
        if "error" in line["tutti"]:
            return (0, 0)
        return (1, line["ratio"]) if line["ratio"] is not None else (2, 0)

    rows = [f"{'seed/draw':>10} {'ratio':>6} {'Tutti':>9} {'PyTorch':>9}  setup"]
    for line in sorted(results, key=order):
        ours, theirs = line["tutti"], line["torch"]
        ratio = f"{line['ratio']:.2f}" if line["ratio"] is not None else "-"
        rows.append(f"{line['seed']}/{line['number']:<4}".rjust(10) + f" {ratio:>6} {ours.get('tokens_per_second', '-'):>9} "
                    f"{theirs.get('tokens_per_second', '-'):>9}  {in_words(line['shape'])}")
        notes = [f"Tutti: {ours['error']}"] if "error" in ours else []
        notes += [f"attention: {ours['attention']}"] if ours.get("attention") else []
        notes += [f"PyTorch: {theirs['error']}"] if "error" in theirs else []
        notes += ["PyTorch ran eager"] if "eager" in theirs.get("program", "") else []
        rows += [" " * 38 + note for note in notes]
    ratios = [line["ratio"] for line in results if line["ratio"] is not None]
    if ratios:
        above = sum(ratio > 1 for ratio in ratios)
        rows.append(f"{len(ratios)} of {len(results)} draws have a ratio: worst {min(ratios):.2f}, median "
                    f"{statistics.median(ratios):.2f}, above 1.0: {above}")
    return "\n".join(rows)


def memory_here():
    """GiB of the GPU, of which an eighth is left to others and to what the formula does not know."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        sys.exit("there is no GPU here that nvidia-smi knows; --memory GIB says for how much memory to draw")
    return int(said.splitlines()[0]) / 1024 * 7 / 8


def tutti_here():
    """Beside this folder: a build, or the programs of a package."""
    places = [os.path.join(HERE, "..", *place) for place in (("build", "tutti"), ("bin", "tutti"))]
    return next((place for place in places if os.path.exists(place)), places[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--results", default="cliffs.jsonl", help="finished draws; a call goes on with those that are missing")
    parser.add_argument("--seconds", type=float, default=math.inf, help="that this call may take")
    parser.add_argument("--most", type=float, default=300, help="seconds of one draw")
    parser.add_argument("--memory", type=float, help="GiB that a draw may take; by default 7/8 of the GPU's")
    parser.add_argument("--steps", type=int, default=10, help="of Tutti, of which the first four do not count")
    parser.add_argument("--tutti", default=tutti_here())
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--python", default=sys.executable, help="the one that has PyTorch and Transformers")
    parser.add_argument("--table", action="store_true", help="only show what was done")
    parser.add_argument("--list", action="store_true", help="only show the draws")
    options = parser.parse_args()
    if options.table:
        return print(table_of(read_results(options.results)))
    options.memory = options.memory or memory_here()
    if options.list:
        for number in range(options.draws):
            print(number, in_words(draw_setup(options.seed, number, options.memory * GIB)))
        return None
    return print(table_of(search(options)))


if __name__ == "__main__":
    main()
