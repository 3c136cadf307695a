#!/usr/bin/env python3
"""Many ranks on one machine: schedules, overlap and scaling, each rank one compute and one communication thread.

    python3 bench/ranks.py [schedules reduction zero halves scaling] [--tutti build/tutti] [--comm mpi] [--ranks 8]
                           [--steps 6] [--rounds 2] [--pin neighbours|halves|none] [--save FOLDER]

GPT-2 layers of equal work with a vocabulary of 512, so that no stage is much heavier than others; weights are made up.
Prints a JSON line per run: the median step of those after the first two, and where the run was traced what the
simulation said of it. What is compared is run in turns, `rounds` times. --save keeps the traces.
"""
import argparse
import array
import json
import math
import os
import random
import shlex
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

VOCABULARY, POSITIONS, HEADS = 512, 256, 16


def tensors_of(layers, width):
    yield "transformer.wte.weight", (VOCABULARY, width)
    yield "transformer.wpe.weight", (POSITIONS, width)
    for layer in range(layers):
        name = f"transformer.h.{layer}."
        for norm in ("ln_1", "ln_2"):
            yield name + norm + ".weight", (width,)
            yield name + norm + ".bias", (width,)
        for part, rows, columns in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                    ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            yield name + part + ".weight", (rows, columns)
            yield name + part + ".bias", (columns,)
    yield "transformer.ln_f.weight", (width,)
    yield "transformer.ln_f.bias", (width,)


def write_model(folder, layers, width):
    """A Hugging Face folder; its weights repeat a few thousand random numbers."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"model_type": "gpt2", "vocab_size": VOCABULARY, "n_positions": POSITIONS, "n_embd": width,
                   "n_layer": layers, "n_head": HEADS, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}, file)
    source = random.Random(1)
    numbers = array.array("f", (source.gauss(0, 0.02) for _ in range(65521))).tobytes()
    header, at = {}, 0
    for name, shape in tensors_of(layers, width):
        size = 4
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            size = entry["data_offsets"][1] - entry["data_offsets"][0]
            ones = "ln_" in name and name.endswith("weight")
            block = array.array("f", [1.0] * (size // 4)).tobytes() if ones else numbers
            while size > 0:
                file.write(block[:size])
                size -= len(block)


def exposed_reduction(trace):
    """Of every traced step: seconds from when the last rank has computed its gradients until all are reduced."""
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    computed, reduced = {}, {}
    for event in events:
        step = event.get("args", {}).get("step")
        if step is None:
            continue
        end = event["ts"] + event["dur"]
        if event["cat"] == "task" and event["args"]["kind"] == "backward":
            computed[step] = max(computed.get(step, 0), end)
        if event["cat"] == "exchange" and "holders" in event["name"]:
            reduced[step] = max(reduced.get(step, 0), end)
    return [round((reduced[step] - computed[step]) * 1e-6, 4) for step in sorted(computed)]


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder, self.runs = options, folder, 0

    def model(self, layers, width):
        folder = os.path.join(self.folder, f"gpt2-l{layers}-w{width}")
        if not os.path.exists(folder):
            write_model(folder, layers, width)
        return folder

    @staticmethod
    def ranks_of(arguments):
        mesh = arguments[arguments.index("--mesh") + 1] if "--mesh" in arguments else ""
        return math.prod(int(axis.split("=")[1]) for axis in mesh.split(",") if axis)

    def bound(self, command, ranks):
        """Two cores for each rank, so that none shares one with another while others are idle; one where there are
        too few."""
        count = os.cpu_count()
        pairs = [f"{i},{i + 1}" for i in range(0, count - 1, 2)]
        if self.options.pin == "halves":
            pairs = [f"{i},{i + count // 2}" for i in range(count // 2)]
        if self.options.pin == "none" or ranks > count:
            return command
        cores = pairs if ranks <= len(pairs) else [str(i) for i in range(count)]
        if ranks == 1:
            return ["taskset", "-c", cores[0], *command]
        script = f"set -- {' '.join(cores)}; shift $OMPI_COMM_WORLD_LOCAL_RANK; exec taskset -c $1 {shlex.join(command)}"
        return ["mpirun", "-q", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "sh",
                "-c", script]

    def run(self, what, model, arguments, batch, micro_batch=1, sequence=64, trace=False, steps=None, exposed=False):
        metrics, traced = os.path.join(self.folder, "metrics.jsonl"), os.path.join(self.folder, "trace.json")
        for path in (metrics, traced):
            if os.path.exists(path):
                os.remove(path)
        command = [self.options.tutti, "train", model, "--sequence", str(sequence), "--global-batch", str(batch),
                   "--micro-batch", str(micro_batch), "--steps", str(steps or self.options.steps), "--threads", "1",
                   "--metrics", metrics, "--json", *arguments]
        if "--mesh" in arguments:
            command += ["--comm", self.options.comm]
        if trace:
            command += ["--trace", traced]
        command = self.bound(command, self.ranks_of(arguments))
        line = {"bench": what, "model": os.path.basename(model), "arguments": " ".join(arguments), "global_batch": batch,
                "micro_batch": micro_batch, "sequence": sequence}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            print(json.dumps(line | {"failed": "no end within 120 s"}), flush=True)
            return line
        if done.returncode != 0:
            line["failed"] = (done.stderr or done.stdout)[-300:]
        else:
            with open(metrics) as steps_file:
                seconds = [json.loads(step)["milliseconds"] / 1e3 for step in steps_file]
            line["step_seconds"] = round(statistics.median(seconds[2:]), 4)
            line["tokens_per_second"] = round(batch * sequence / line["step_seconds"])
        if trace and os.path.exists(traced):
            self.compare(line, traced, seconds, exposed)
        print(json.dumps(line), flush=True)
        return line

    def compare(self, line, traced, seconds, exposed):
        report = subprocess.run([self.options.tutti, "report", traced, "--json"], capture_output=True, text=True)
        if report.returncode != 0:
            line["failed"] = report.stderr[-300:]
            return
        told = json.loads(report.stdout.strip().splitlines()[-1])
        line["traced_seconds"], line["simulated_seconds"] = (round(told["time"][key], 4)
                                                             for key in ("measured", "simulated"))
        line["error"] = round(line["simulated_seconds"] / line["step_seconds"] - 1, 4)
        line["steps"] = [round(step, 3) for step in seconds]
        kinds = {}
        for kind in told["kinds"]:
            sums = kinds.setdefault(kind["kind"], [0.0, 0.0])
            sums[0] += kind["measured"]
            sums[1] += kind["simulated"]
        line["kinds"] = {kind: [round(value, 3) for value in sums] for kind, sums in kinds.items()}
        line["waiting"] = [round(sum(rank[key] for rank in told["waiting"]), 3) for key in ("measured", "simulated")]
        if exposed:
            line["exposed_seconds"] = exposed_reduction(traced)
        if self.options.save:
            self.runs += 1
            shutil.copy(traced, os.path.join(self.options.save, f"trace-{self.runs}.json"))

    def schedules(self):
        ranks, model = self.options.ranks, self.model(2 * self.options.ranks, self.options.width)
        runs = [("1f1b", "none"), ("interleaved", "none"), ("zb-1p", "none"), ("shifted-critical-path", "full"),
                ("1f1b", "full"), ("interleaved", "full"), ("zb-1p", "full")]
        results = {}
        for _ in range(self.options.rounds):
            for schedule, recompute in runs:
                stages = ["--stages-per-rank", "2"] if schedule == "interleaved" else []
                line = self.run("schedules", model, ["--mesh", f"pipe={ranks}", "--schedule", schedule, *stages,
                                                     "--recompute", recompute], self.options.micro_batches * ranks,
                                trace=True)
                if "simulated_seconds" in line:
                    results.setdefault((recompute, schedule), []).append(line)
        for (recompute, schedule), lines in results.items():
            median = {key: statistics.median(line[key] for line in lines)
                      for key in ("step_seconds", "traced_seconds", "simulated_seconds")}
            errors = [line["simulated_seconds"] / line["step_seconds"] - 1 for line in lines]
            print(json.dumps({"schedule": schedule, "recompute": recompute, **median,
                              "errors": [round(error, 4) for error in errors]}), flush=True)

    def reduction(self):
        """Chunks of 1 Mi elements, reduced as they become ready, against one chunk, reduced when all is computed."""
        model = self.model(8, self.options.width)
        for _ in range(self.options.rounds):
            for chunk in ("1048576", str(256 << 20)):
                self.run("reduction", model, ["--mesh", f"data={self.options.ranks}", "--chunk-elements", chunk],
                         4 * self.options.ranks, micro_batch=4, sequence=128, trace=True, exposed=True)

    def zero(self):
        model = self.model(8, self.options.width)
        for zero in ("0", "1", "2", "3"):
            self.run("zero", model, ["--mesh", f"data={self.options.ranks}", "--zero", zero], 4 * self.options.ranks,
                     micro_batch=2, trace=True)

    def halves(self):
        model = self.model(8, self.options.width)
        for width in (2, 4, 8):
            for _ in range(self.options.rounds):
                for halves in ("off", "on"):
                    self.run("halves", model, ["--mesh", f"tensor={width}", "--sub-pipeline", halves], 8, micro_batch=4,
                             steps=7)

    def scaling(self):
        model = self.model(8, 512)
        for ranks in (1, 2, 4, 8, 16):
            for axis in ("data", "tensor", "pipe") if ranks > 1 else ("",):
                mesh = ["--mesh", f"{axis}={ranks}"] if ranks > 1 else []
                self.run("strong", model, mesh, 16, steps=5)
        for ranks in (1, 2, 4, 8, 16):
            self.run("weak data", model, ["--mesh", f"data={ranks}"] if ranks > 1 else [], 4 * ranks, steps=6)
        for ranks in (1, 2, 4, 8, 16):  # a layer each
            self.run("weak pipe", self.model(ranks, 512), ["--mesh", f"pipe={ranks}"] if ranks > 1 else [], 32, steps=5)


def main():
    benches = ["schedules", "reduction", "zero", "halves", "scaling"]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("benches", nargs="*", choices=[[], *benches], default=[])
    options.add_argument("--tutti", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "tutti"))
    options.add_argument("--comm", default="mpi")
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--width", type=int, default=768)
    options.add_argument("--micro-batches", type=int, default=1, help="of schedules: so many times the ranks")
    options.add_argument("--steps", type=int, default=6)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--pin", choices=["neighbours", "halves", "none"], default="neighbours",
                         help="which two cores a rank gets: 0 and 1, or 0 and the first of the second half")
    options.add_argument("--save", default="")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(chosen, folder)
        for name in chosen.benches or benches:
            getattr(bench, name)()


if __name__ == "__main__":
    sys.exit(main())
