"""Times torch on names and shapes that gpu_bench has measured: python3 torch_bench.py '[{"name": ..., "shape": ...}, ...]'

Prints a line of JSON for each of them that torch has, like those of gpu_bench. Weights and caches are bf16; torch's
results of products are bf16 as well, ours f32.
"""

import json
import re
import statistics
import sys

import torch
import torch.nn.functional as F

SERIES_US = 10_000
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128  # those of gpu_bench


def median_us(call):
    """Microseconds of one call, measured as gpu_timer.h does."""

    def series_us(calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return 1000 * begin.elapsed_time(end) / calls

    series_us(2)
    calls = max(3, min(500, int(SERIES_US / max(series_us(3), 1))))
    return statistics.median(series_us(calls) for _ in range(7))


def random(*shape, dtype=torch.bfloat16):
    return torch.rand(*shape, device="cuda", dtype=dtype) * 2 - 1


def matmul(m, n, k):
    x, w = random(m, k), random(n, k)
    return lambda: F.linear(x, w)


def rms_norm(rows, columns):
    x, weight = random(rows, columns, dtype=torch.float32), random(columns, dtype=torch.float32)
    return lambda: F.rms_norm(x, (columns,), weight, 1e-5)


def decode_attention(sequences, tokens):
    """Over a contiguous cache, where ours follows a block table."""
    q = random(sequences, HEADS, 1, HEAD_DIM)
    keys, values = random(sequences, KV_HEADS, tokens, HEAD_DIM), random(sequences, KV_HEADS, tokens, HEAD_DIM)
    return lambda: F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)


def main():
    with torch.inference_mode():
        for line in json.loads(sys.argv[1]):
            make = {"matmul": matmul, "rms_norm": rms_norm, "decode_attention": decode_attention}.get(line["name"])
            if make is None:
                continue
            call = make(*map(int, re.findall(r"\d+", line["shape"])))
            print(json.dumps({"kind": "torch", **line, "us": median_us(call)}), flush=True)


main()
