#!/usr/bin/env python3
"""What the planner predicts of plans, against what they take.

    python3 bench/fidelity.py [cpu] [gpu] [--tutti build/tutti] [--ranks 8] [--steps 8] [--rounds 1] [--width 512]
                              [--pin neighbours|halves|none] [--models NAME,...] [--limit N] [--seconds N]
                              [--save FOLDER]

cpu: plans of two models on so many ranks, each with one compute thread. The machine is profiled once for each model
(tutti profile); every plan is run, predicted from that profile (tutti plan --evaluate), and the planner's own first
choice is run beside them. gpu: three models on one GPU, with and without recomputation.

Prints a JSON line for every plan: its step, the predicted one, and the memory of the rank that is furthest off:
predicted, as the run's own table has it, and of the process at its peak. Then the medians and the worst. A step is the
lower quartile of all after the first two, as kernels are timed: others who use the machine make steps slower, and never
faster. Plans are run `rounds` times; --seconds ends a machine's runs early; --save keeps models, profiles and plans.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from ranks import Bench

PLANS = [
    "--mesh data=8 --micro-batch 2",
    "--mesh pipe=8 --micro-batch 2",
    "--mesh data=8 --micro-batch 4 --zero 1",
    "--mesh data=4,pipe=2 --micro-batch 2 --recompute full",
    "--mesh data=8 --micro-batch 2 --zero 3",
    "--mesh data=2,pipe=4 --micro-batch 2 --schedule interleaved --stages-per-rank 2",
    "--mesh data=4,tensor=2 --micro-batch 4",
    "--mesh data=2,pipe=4 --micro-batch 2 --schedule zb-1p",
    "--mesh data=2,pipe=2,tensor=2 --micro-batch 4",
    "--mesh data=8 --micro-batch 2 --zero 2",
    "--mesh pipe=8 --micro-batch 2 --schedule shifted-critical-path --recompute full",
    "--mesh data=4,tensor=2 --micro-batch 4 --sub-pipeline on",
    "--mesh data=2,tensor=4 --micro-batch 4 --recompute full",
]
GPU_PLANS = ["--recompute none", "--recompute full"]


def gpt2(layers, width, heads, vocabulary=512, positions=1024):
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": vocabulary,
            "n_positions": positions, "n_embd": width, "n_layer": layers, "n_head": heads, "resid_pdrop": 0,
            "embd_pdrop": 0, "attn_pdrop": 0}


def llama(layers, width, heads, key_heads, inner, vocabulary=512, positions=2048):
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
            "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": key_heads, "vocab_size": vocabulary, "max_position_embeddings": positions,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "silu", "rope_theta": 10000.0}


class Fidelity:
    def __init__(self, options, folder):
        self.options, self.folder, self.lines = options, folder, []
        self.ranks = Bench(options, folder)  # for its way of giving ranks their cores
        self.data = os.path.join(folder, "text")  # small, so that it takes no memory worth counting
        with open(self.data, "w") as file:
            file.write("".join(chr(97 + number * number % 23) for number in range(200000)))
        self.environment = dict(os.environ, TUTTI_CACHE=os.path.join(folder, "cache"))

    def model(self, name, config):
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        return folder

    def call(self, words, ranks=1, limit=150):
        command = [self.options.tutti, *words]
        done = subprocess.run(self.ranks.bound(command, ranks) if ranks > 1 else command, capture_output=True, text=True,
                              timeout=limit, env=self.environment)
        if done.returncode != 0:
            raise RuntimeError(" ".join(words[:3]) + ": " + (done.stderr or done.stdout)[-300:])
        return done.stdout

    def measure(self, model, words, ranks):
        """The run's summary and result, and its step."""
        metrics = os.path.join(self.folder, "metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        text = self.call(["train", model, "--from-scratch", "--data", self.data, *words, "--steps",
                          str(self.options.steps), "--metrics", metrics, "--json"], ranks)
        told = {}
        for line in text.splitlines():
            told.update(json.loads(line))
        with open(metrics) as file:
            seconds = [line["milliseconds"] / 1e3 for line in map(json.loads, file) if "milliseconds" in line]
        return told["summary"], told["result"], seconds[2:]

    def predict(self, model, profile, plan):
        return json.loads(self.call(["plan", model, "--profile", profile, "--evaluate", plan, "--json"]))

    def compare(self, name, model, profile, words, ranks, given):
        line = {"model": name, "plan": given, "ranks": ranks}
        try:
            summary, result, steps = self.measure(model, words, ranks)
            for _ in range(1, self.options.rounds):
                steps += self.measure(model, words, ranks)[2]
            seconds = sorted(steps)[len(steps) // 4]
            plan = os.path.join(self.folder, f"{name}-plan-{len(self.lines)}.json")
            with open(plan, "w") as file:
                json.dump(summary["plan"], file)
            predicted = self.predict(model, profile, plan)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            line["failed"] = str(error)
            print(json.dumps(line), flush=True)
            return line
        table = summary["memory_bytes_of_ranks"]
        peaks = result["peak_resident_bytes_of_ranks"]
        if result["device_memory_bytes"] > 0:
            peaks = [result["device_memory_bytes"]]
        told = predicted["memory_bytes_of_ranks"]
        worst = max(range(len(told)), key=lambda rank: abs(told[rank] / peaks[rank] - 1))
        line.update({"step_seconds": round(seconds, 4), "predicted_seconds": round(predicted["step_seconds"], 4),
                     "error": round(predicted["step_seconds"] / seconds - 1, 4),
                     "median_step": round(statistics.median(steps), 4), "steps": [round(step, 3) for step in steps], "of_predicted": {
                         key: round(value, 4) for key, value in predicted["seconds"].items() if value > 0},
                     "memory": {"rank": worst, "predicted": told[worst], "table": table[worst], "peak": peaks[worst]},
                     "memory_error": round(told[worst] / peaks[worst] - 1, 4),
                     "table_error": round(max((told[r] / table[r] - 1 for r in range(len(told))), key=abs), 4)})
        print(json.dumps(line), flush=True)
        self.lines.append(line)
        return line

    def summary(self, what):
        errors = [abs(line["error"]) for line in self.lines]
        if not errors:
            return
        print(json.dumps({"summary": what, "plans": len(errors), "median_error": round(statistics.median(errors), 4),
                          "worst_error": max(errors),
                          "worst_memory_error": max(abs(line["memory_error"]) for line in self.lines),
                          "worst_table_error": max(abs(line["table_error"]) for line in self.lines)}), flush=True)
        self.lines = []

    def cpu(self):
        ranks, width, began = self.options.ranks, self.options.width, time.time()
        configs = {"gpt2": gpt2(8, width, 16), "llama": llama(6, width, 16, 8, 8 * width // 3 // 64 * 64)}
        batch, sequence = 4 * ranks, 64
        for name in self.chosen(configs):
            model, profile = self.model(name, configs[name]), os.path.join(self.folder, name + "-profile.json")
            common = ["--threads", "1", "--sequence", str(sequence)]
            if ranks > 1:
                common += ["--comm", "mpi"]
            start = time.time()
            self.call(["profile", model, "--micro-batch", "1,2,4", "--tensor", ",".join(
                str(width) for width in (1, 2, 4) if ranks % width == 0), "--ranks", str(ranks), "--output", profile, *common],
                      ranks)
            print(json.dumps({"model": name, "profile_seconds": round(time.time() - start, 1)}), flush=True)
            best = os.path.join(self.folder, "best.json")
            start = time.time()
            choice = json.loads(self.call(["plan", model, "--profile", profile, "--global-batch", str(batch), "--sequence",
                                           str(sequence), "--output", best, "--json"]))
            print(json.dumps({"model": name, "search_seconds": round(time.time() - start, 1),
                              "choice": choice["plans"][0] if "plans" in choice else ""}), flush=True)
            given = [(plan, [*common, "--global-batch", str(batch), *plan.split()])
                     for plan in (adapt(plan, ranks) for plan in PLANS[:self.options.limit or None]) if plan]
            given.append(("the planner's first", ["--threads", "1", "--plan", best, *common[4:]]))
            times = {}
            for plan, words in given:
                if self.options.seconds and time.time() - began > self.options.seconds:
                    break
                line = self.compare(name, model, profile, words, ranks, plan)
                if "step_seconds" in line:
                    times[plan] = line["step_seconds"]
            if "the planner's first" in times:
                fastest = min(times, key=times.get)
                print(json.dumps({"model": name, "first_over_fastest": round(
                    times["the planner's first"] / times[fastest], 4), "fastest": fastest}), flush=True)
        self.summary("cpu")

    def chosen(self, configs):
        return [name for name in configs if name in (self.options.models or ",".join(configs)).split(",")]

    def gpu(self):
        configs = {"gpt2-124m": (gpt2(12, 768, 12, 50257), 8, 1024), "llama-1b": (llama(22, 2048, 32, 4, 5632, 32000), 8, 2048),
                   "gpt2-355m": (gpt2(24, 1024, 16, 50257), 8, 1024)}
        for name in self.chosen(configs):
            config, micro_batch, sequence = configs[name]
            model, profile = self.model(name, config), os.path.join(self.folder, name + "-profile.json")
            common = ["--device", "cuda", "--dtype", "bf16", "--sequence", str(sequence)]
            self.call(["profile", model, "--micro-batch", str(micro_batch), "--output", profile, *common])
            for plan in GPU_PLANS:
                self.compare(name, model, profile, [*common, "--global-batch", str(4 * micro_batch), "--micro-batch",
                                                    str(micro_batch), *plan.split()], 1, plan)
        self.summary("gpu")


def adapt(plan, ranks):
    """A plan for eight ranks as one for fewer: axes are halved, the largest first; none where nothing is left of it."""
    words = plan.split()
    axes = {axis: int(size) for axis, size in (part.split("=") for part in words[1].split(","))}
    while True:
        count = 1
        for size in axes.values():
            count *= size
        if count <= ranks:
            break
        largest = max(axes, key=axes.get)
        axes[largest] //= 2
    if count != ranks:
        return None
    words[1] = ",".join(f"{axis}={size}" for axis, size in axes.items())
    return " ".join(words)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("machines", nargs="*", choices=[[], "cpu", "gpu"], default=[])
    options.add_argument("--tutti", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "tutti"))
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--steps", type=int, default=8)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--models", default="", help="names, by commas; empty: all")
    options.add_argument("--limit", type=int, default=0, help="plans of each model; 0: all")
    options.add_argument("--seconds", type=float, default=0, help="no run begins after that")
    options.add_argument("--save", help="folder that keeps models, profiles and plans")
    options.add_argument("--pin", choices=["neighbours", "halves", "none"], default="neighbours")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.save or temporary
        os.makedirs(folder, exist_ok=True)
        fidelity = Fidelity(chosen, folder)
        for machine in chosen.machines or ["cpu"]:
            getattr(fidelity, machine)()


if __name__ == "__main__":
    sys.exit(main())
