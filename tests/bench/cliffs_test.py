#!/usr/bin/env python3
"""bench/cliffs.py without a GPU: what it draws, that it goes on where it stopped, and its table."""
import json
import os
import stat
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import cliffs  # noqa: E402
import random_setups  # noqa: E402

GIB = 2**30


def shape(**sizes):
    usual = {"family": "llama", "dtype": "bf16", "heads": 32, "key_heads": 32, "head_size": 128, "hidden": 4096,
             "feed_forward": 11008, "layers": 32, "vocabulary": 32000, "sequence": 2048, "batch": 1, "window": None,
             "dropout": 0.0, "tied": False}
    return {**usual, **sizes}


GPT2 = shape(family="gpt2", heads=12, key_heads=12, head_size=64, hidden=768, feed_forward=3072, layers=12,
             vocabulary=50257, sequence=1024, batch=64, tied=True)
LLAMA_1B = shape(key_heads=4, head_size=64, hidden=2048, feed_forward=5632, layers=22, batch=8)
QWEN_05B = shape(family="qwen2", heads=14, key_heads=2, head_size=64, hidden=896, feed_forward=4864, layers=24,
                 vocabulary=151936, sequence=1024, batch=16, tied=True)


class Draws(unittest.TestCase):
    def test_a_draw_depends_on_seed_and_number_alone(self):
        def first(seed):
            return [random_setups.draw_setup(seed, number, 120 * GIB) for number in range(20)]
        self.assertEqual(first(3), first(3))
        self.assertEqual(random_setups.draw_setup(3, 19, 120 * GIB), first(3)[19])
        self.assertNotEqual(first(3), first(4))

    def test_draws_are_within_what_is_asked_for(self):
        for memory in (20 * GIB, 120 * GIB):
            for number in range(1000):
                one = random_setups.draw_setup(0, number, memory)
                self.assertLessEqual(random_setups.memory_of(one), memory, one)
                self.assertLessEqual(random_setups.flops_of(one), random_setups.WORK[one["dtype"]], one)
                self.assertTrue(128 <= one["sequence"] <= 131072, one)
                self.assertEqual(one["heads"] % one["key_heads"], 0, one)
                self.assertGreaterEqual(min(one["batch"], one["feed_forward"], one["vocabulary"], one["layers"]), 1, one)
                if "head_size" not in random_setups.FAMILIES[one["family"]]:
                    self.assertEqual(one["hidden"], one["heads"] * one["head_size"], one)
                if one["window"]:
                    self.assertLessEqual(one["window"], one["sequence"], one)

    def test_everything_is_drawn_now_and_then(self):
        draws = [random_setups.draw_setup(0, number, 120 * GIB) for number in range(1000)]
        for key, values in {"family": set(random_setups.FAMILIES), "head_size": set(random_setups.HEAD_SIZES),
                            "dtype": {"bf16", "float32"}, "dropout": {0.0, 0.1}}.items():
            self.assertEqual({one[key] for one in draws}, values)
        self.assertTrue(any(one["window"] for one in draws))
        self.assertTrue(any(one["sequence"] == 131072 for one in draws))
        self.assertTrue(any(one["sequence"] % 64 for one in draws))
        self.assertGreater(len({json.dumps(one) for one in draws}), 990)

    def test_parameters_are_those_of_published_models(self):
        for one, millions in ((GPT2, 124.4), (shape(), 6738), (LLAMA_1B, 1100), (QWEN_05B, 494),
                              (shape(family="bert", heads=16, key_heads=16, head_size=64, hidden=1024, feed_forward=4096,
                                     layers=24, vocabulary=30522, sequence=512), 335)):
            self.assertAlmostEqual(random_setups.parameters_of(one) / 1e6 / millions, 1, delta=0.01)

    def test_the_bound_of_memory_is_above_what_was_measured(self):
        # bench/results/2026-11-15-h200.md: GiB of the device with PyTorch, compiled, of which Tutti took less
        for one, measured in ((GPT2, 50.5), (LLAMA_1B, 35.8), (QWEN_05B, 37.2)):
            bound = random_setups.memory_of(one) / GIB
            self.assertTrue(measured < bound < 2.5 * measured, (bound, measured))

    def test_a_window_costs_what_it_sees(self):
        # 12 x layers x tokens x seen x width: all of 8192 / 2 keys, or 1024 of them
        whole = shape(family="mistral", sequence=8192)
        less = random_setups.flops_of(whole) - random_setups.flops_of({**whole, "window": 1024})
        self.assertAlmostEqual(less, 12 * 32 * 8192 * (4096 - 1024) * 4096, delta=1e6)

    def test_configs_are_in_the_words_of_their_family(self):
        self.assertEqual(random_setups.config_of({**GPT2, "dropout": 0.1})["attn_pdrop"], 0.1)
        mistral = random_setups.config_of(shape(family="mistral", window=512, key_heads=8))
        self.assertEqual((mistral["sliding_window"], mistral["num_key_value_heads"], mistral["head_dim"]), (512, 8, 128))
        self.assertEqual(random_setups.config_of(shape(family="roberta"))["max_position_embeddings"], 2050)
        for family in random_setups.FAMILIES:
            config = random_setups.config_of(shape(family=family))
            self.assertEqual(config["model_type"], family)
            self.assertEqual(len(config["architectures"]), 1)


class Searches(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.results = os.path.join(self.folder.name, "cliffs.jsonl")
        self.now, self.ran = 0.0, []
        self.addCleanup(self.folder.cleanup)
        sys.stderr, self.stderr = open(os.devnull, "w"), sys.stderr
        self.addCleanup(self.restore)

    def restore(self):
        sys.stderr.close()
        sys.stderr = self.stderr

    def search(self, seconds, draws=6, seed=1, takes=100.0, fails=""):
        def run(_, drawn, limit):
            self.ran.append(drawn)
            self.now += min(takes, limit)
            if takes > limit:
                return {"tutti": {"tokens_per_second": 1}, "torch": {"error": f"not done within {limit:.0f} s"}, "ratio": None}
            return {"tutti": {"error": fails} if fails else {"tokens_per_second": 300}, "torch": {"tokens_per_second": 200},
                    "ratio": None if fails else 1.5}
        options = types.SimpleNamespace(results=self.results, seed=seed, draws=draws, seconds=seconds, memory=120, most=300)
        return cliffs.search(options, run, lambda: self.now)

    def test_a_later_call_goes_on_where_the_time_was_up(self):
        self.assertEqual([line["number"] for line in self.search(250)], [0, 1])
        self.assertEqual([line["number"] for line in self.search(350)], [0, 1, 2, 3, 4])
        self.assertEqual([line["number"] for line in self.search(1000)], [0, 1, 2, 3, 4, 5])
        self.search(1000)
        self.assertEqual(self.ran, [random_setups.draw_setup(1, number, 120 * GIB) for number in range(6)])

    def test_a_line_that_was_cut_off_is_done_again(self):
        self.search(250)
        whole = open(self.results).read()
        with open(self.results, "w") as file:
            file.write(whole[:-20])
        self.assertEqual([line["number"] for line in self.search(1000, draws=3)], [0, 1, 2])
        self.assertEqual(len(self.ran), 4)
        self.assertEqual([json.loads(line)["number"] for line in open(self.results)], [0, 1, 2])

    def test_a_draw_that_the_end_of_the_call_cut_short_is_not_kept(self):
        self.assertEqual(self.search(90, takes=120.0), [])
        self.assertEqual(len(self.search(500, draws=1, takes=120.0)), 1)

    def test_a_draw_that_takes_longer_than_any_may_is_kept_with_its_error(self):
        lines = self.search(1000, draws=1, takes=400.0)
        self.assertEqual(lines[0]["torch"]["error"], "not done within 300 s")

    def test_seeds_share_a_file(self):
        self.search(1000, draws=2, seed=1)
        self.assertEqual(len(self.search(1000, draws=2, seed=2)), 4)


class Tables(unittest.TestCase):
    def line(self, number, tutti, torch, **sizes):
        line = {"seed": 5, "number": number, "shape": shape(**sizes), "tutti": tutti, "torch": torch}
        return {**line, "ratio": cliffs.ratio_of(line)}

    def test_the_worst_comes_first_and_what_did_not_run_is_said(self):
        text = cliffs.table_of([
            self.line(0, {"tokens_per_second": 300, "attention": "cuDNN"}, {"tokens_per_second": 200}),
            self.line(1, {"tokens_per_second": 100, "attention": ""}, {"error": "out of memory"}),
            self.line(2, {"tokens_per_second": 50, "attention": "own kernels"},
                      {"tokens_per_second": 200, "program": "PyTorch 2.11 eager"}, dropout=0.1),
            self.line(3, {"error": "the window must hold the sequence"}, {"tokens_per_second": 10}, window=256),
            self.line(4, {"tokens_per_second": 240}, {"tokens_per_second": 200})])
        rows = text.splitlines()
        numbers = [row.split()[0] for row in rows if row.strip().startswith("5/")]
        self.assertEqual(numbers, ["5/3", "5/2", "5/4", "5/0", "5/1"])
        for part in ("Tutti: the window must hold the sequence", "attention: own kernels", "PyTorch: out of memory",
                     "PyTorch ran eager", "0.25", "1.50", "window 256"):
            self.assertIn(part, text)
        self.assertEqual(rows[-1], "3 of 5 draws have a ratio: worst 0.25, median 1.20, above 1.0: 2")

    def test_what_tutti_says_of_its_attention_is_found_wherever_it_stands(self):
        summary = {"decided": ["fusion: head of 4096 rows", "attention: own, mma.sync"],
                   "plan": {"timed_kernels": {"NVIDIA X": {"attention 1x2": "cudnn 4", "bf16 1x1": "3"}}}}
        self.assertEqual(cliffs.attention_of(summary, "tutti: warning: attention is slow here\n"),
                         "attention: own, mma.sync; attention 1x2: cudnn 4; tutti: warning: attention is slow here")


# A program that behaves as tutti train --json does, or fails as it does.
PRETENDER = """#!{python}
import json, os, sys
words = sys.argv
config = json.load(open(os.path.join(words[2], "config.json")))
if config["vocab_size"] == 666:
    sys.exit("tutti: the vocabulary is beastly")
with open(words[words.index("--data") + 1], "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert header["input_ids"]["shape"][1:] == [2, 256], header
with open(words[words.index("--metrics") + 1], "w") as file:
    for step in range(10):
        print(json.dumps({{"tokens_per_second": 10 if step < 4 else 1000}}), file=file)
print(json.dumps({{"summary": {{"decided": ["attention: own"]}}}}))
print(json.dumps({{"result": {{"device_memory_bytes": 1 << 31}}}}))
"""


class Running(unittest.TestCase):
    def run_with(self, vocabulary):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "tutti")
            with open(program, "w") as file:
                file.write(PRETENDER.format(python=sys.executable))
            os.chmod(program, stat.S_IRWXU)
            options = types.SimpleNamespace(tutti=program, device="cuda", steps=10, python="false")
            return cliffs.run_draw(options, shape(batch=2, sequence=256, vocabulary=vocabulary), 60)

    def test_the_first_steps_do_not_count(self):
        line = self.run_with(1000)
        self.assertEqual(line["tutti"], {"tokens_per_second": 1000, "attention": "attention: own", "device_gib": 2.0})
        self.assertIn("ended with status 1", line["torch"]["error"])
        self.assertIsNone(line["ratio"])

    def test_a_refusal_is_told_in_its_own_words(self):
        self.assertEqual(self.run_with(666)["tutti"]["error"], "tutti: the vocabulary is beastly")


if __name__ == "__main__":
    unittest.main()
