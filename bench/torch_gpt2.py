#!/usr/bin/python3
"""Training speed of GPT-2 in PyTorch on this CPU: the peer that `tutti train` is held against.

One optimizer step (forward, backward, AdamW) on random tokens, float32 by default; the median of a few steps after a
warm-up. Prints one JSON line. PyTorch on Debian does its matrix products with whatever provides libblas.so.3: the
reference BLAS that comes with it is 30 times slower than libopenblas0-openmp. OpenBLAS in turn does not recognise every
CPU: the environment variable OPENBLAS_CORETYPE (Haswell, Zen, SkylakeX, Cooperlake) can change the speed severalfold.

    OPENBLAS_CORETYPE=SkylakeX /usr/bin/python3 bench/torch_gpt2.py --linear mkldnn
    /usr/bin/python3 bench/torch_gpt2.py --model small
"""
import argparse
import json
import math
import os
import platform
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {
    #        layers, width, heads, vocabulary, context, batch, sequence
    "gpt2": (12, 768, 12, 50257, 1024, 4, 256),   # 124M parameters
    "small": (6, 256, 4, 256, 1024, 16, 128),     # 5M parameters
}


class MkldnnLinear(torch.autograd.Function):
    """A linear layer whose three products go to oneDNN instead of OpenBLAS."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return mkldnn_product(x, weight, bias)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dy_rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
        dx = mkldnn_product(dy, weight.t().contiguous(), None)
        dw = mkldnn_product(dy_rows.t().contiguous(), x_rows.t().contiguous(), None)
        return dx, dw, dy_rows.sum(0) if ctx.has_bias else None


def mkldnn_product(x, weight, bias):
    x, weight = x.contiguous().to_mkldnn(), weight.to_mkldnn()
    return torch._C._nn.mkldnn_linear(x, weight, bias.to_mkldnn() if bias is not None else None).to_dense()


def linear(x, layer, how):
    bias = getattr(layer, "bias", None)  # an embedding, as the tied head, has none
    if how == "mkldnn":
        return MkldnnLinear.apply(x, layer.weight, bias)
    return F.linear(x, layer.weight, bias)


class Block(nn.Module):
    def __init__(self, width, heads, how):
        super().__init__()
        self.heads, self.how = heads, how
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2)
                   for t in linear(self.ln_1(x), self.qkv, self.how).split(width, dim=2))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + linear(mixed, self.projection, self.how)
        hidden = F.gelu(linear(self.ln_2(x), self.up, self.how), approximate="tanh")
        return x + linear(hidden, self.down, self.how)


class GPT2(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, context, how):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, how) for _ in range(layers))
        self.ln_f, self.how = nn.LayerNorm(width), how
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        x = self.tokens(tokens) + self.positions(torch.arange(length))
        for block in self.blocks:
            x = block(x, mask)
        logits = linear(self.ln_f(x), self.tokens, self.how)  # the head is tied to the embedding
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--linear", choices=["torch", "mkldnn"], default="torch", help="who computes linear layers")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--no-mkldnn", action="store_true", help="switch torch.backends.mkldnn off")
    parser.add_argument("--foreach", action="store_true", help="AdamW over lists of tensors: slower here, and takes more memory")
    parser.add_argument("--profile", action="store_true", help="print the operators that cost most")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    torch.backends.mkldnn.flags(enabled=not options.no_mkldnn).__enter__()
    layers, width, heads, vocabulary, context, batch, length = MODELS[options.model]
    model = GPT2(layers, width, heads, vocabulary, context, options.linear)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, foreach=options.foreach)
    tokens = torch.randint(vocabulary, (batch, length + 1))

    losses = []
    forward = torch.compile(model) if options.compile else model

    def step():
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
            loss = forward(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        forward_and_backward = time.perf_counter() - start
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(loss.item(), 4))
        return time.perf_counter() - start, forward_and_backward

    step()  # warm-up: allocates gradients and moments
    if options.profile:
        with torch.profiler.profile() as profile:
            step()
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
    times = [step() for _ in range(options.steps)]
    seconds = statistics.median(total for total, _ in times)
    print(json.dumps({
        "benchmark": "torch_gpt2", "model": options.model, "parameters": sum(p.numel() for p in model.parameters()),
        "batch": batch, "sequence": length, "type": "bf16 autocast" if options.bf16 else "f32",
        "tokens_per_second": round(batch * length / seconds, 1), "step_seconds": [round(total, 4) for total, _ in times],
        "optimizer_seconds": round(statistics.median(total - part for total, part in times), 4),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "losses": losses,
        "linear": options.linear, "compile": options.compile, "mkldnn": not options.no_mkldnn, "foreach": options.foreach,
        "threads": torch.get_num_threads(), "torch": torch.__version__, "python": platform.python_version(),
        "blas": os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3"),
        "environment": {k: v for k, v in os.environ.items() if k.startswith(("OPENBLAS_", "OMP_", "MKL", "DNNL", "ONEDNN"))},
        "load_before": os.getloadavg()[0],
    }))


if __name__ == "__main__":
    main()
