#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A word at a time to memory: onrush measure between two runs of sysbench, twelve times.

usage: write.py ONRUSH   (root; sysbench)
"""
import json
import re
import statistics
import subprocess
import sys
import tempfile

SYSBENCH = "sysbench memory --memory-block-size=128M --memory-total-size=16G --memory-oper=write run"
pinned = ["taskset", "-c", "1"]


def theirs():
    said = subprocess.run(pinned + SYSBENCH.split(), capture_output=True, text=True).stdout
    return float(re.search(r"\(([\d.]+) MiB/sec\)", said).group(1)) * 1.048576e-3


def ours():
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        measure = [sys.argv[1], "measure", "--quick", "--only", "memory", "--json", file.name]
        subprocess.run(pinned + measure, capture_output=True)
        rows = json.load(open(file.name))["runs"]
    row = [row for row in rows if row.get("id") == "bandwidth_write_scalar"][0]
    return row["measured"]["median"] / 1e9


ratios = []
for _ in range(12):
    before, own, after = theirs(), ours(), theirs()
    ratios.append(own / ((before + after) / 2))
    print(f"{before:.1f} {own:.1f} {after:.1f}  {ratios[-1]:.3f}", flush=True)
print("median", statistics.median(ratios))
