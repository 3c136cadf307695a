"""Attention in PyTorch, forward and backward, for the sizes of bench/cuda_attention.cpp: its own flash kernels (mma.sync)
and cuDNN's, which do not add in a fixed order backward.

    python3 bench/attention_torch.py
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# batch, length, heads, key heads, size of heads, causal, dropout
SIZES = [
    (16, 1024, 16, 16, 64, True, 0),
    (2, 8192, 16, 16, 64, True, 0),
    (2, 8192, 16, 16, 64, False, 0),
    (16, 1024, 16, 16, 128, True, 0),
    (2, 8192, 16, 16, 128, True, 0),
    (2, 8192, 16, 16, 128, False, 0),
    (2, 4096, 16, 16, 256, True, 0),
    (1, 32768, 16, 4, 64, True, 0),
    (1, 32768, 16, 4, 128, True, 0),
    (32, 1024, 12, 12, 64, True, 0),
    (32, 1024, 12, 12, 64, True, 0.1),
    (32, 512, 16, 16, 64, False, 0),
    (32, 512, 16, 16, 64, False, 0.1),
]


def milliseconds(work):
    """The median of three means of some runs, after three that are not counted."""
    for _ in range(3):
        work()
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)

    def mean(runs):
        begin.record()
        for _ in range(runs):
            work()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / runs

    runs = max(3, min(50, int(30 / max(mean(1), 0.01))))
    return sorted(mean(runs) for _ in range(3))[1]


def measure(size, backend):
    b, t, h, g, d, causal, dropout = size

    def heads(count):
        return torch.randn(b, t, count, d, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    q, k, v = (heads(count).requires_grad_() for count in (h, g, g))
    gradient = heads(h)

    def attention():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, dropout_p=dropout, enable_gqa=g != h
        )

    with sdpa_kernel(backend):
        with torch.no_grad():
            forward = milliseconds(attention)
        out = attention()
        backward = milliseconds(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
    return forward, backward


for size in SIZES:
    b, t, h, g, d, causal, dropout = size
    flops = 4 * b * h * t * t * d * (0.5 if causal else 1)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        name = f"{backend.name} b {b} t {t} h {h} g {g} d {d}{' causal' if causal else ''} dropout {dropout}"
        try:
            forward, backward = measure(size, backend)
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0]}", flush=True)
            continue
        print(
            f"{name}: forward {forward:.3f} ms, {flops / forward * 1e-9:.0f} TFLOP/s; "
            f"backward {backward:.3f} ms, {2.5 * flops / backward * 1e-9:.0f} TFLOP/s",
            flush=True,
        )
