#!/usr/bin/env python3
"""Measures what other instruments measure too, turn about with them, and keeps every figure.

usage: others.py ONRUSH TURNS OUT.json   (root; linux-perf, sysbench, fio, ping)
"""
import json, os, re, subprocess, sys, tempfile

onrush, turns, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
core = max(os.sched_getaffinity(0))
pinned = ["taskset", "-c", str(core)]
folder = tempfile.mkdtemp(dir="/var/tmp")
film = os.path.join(folder, "fio")


def run(command):
    done = subprocess.run(pinned + command, capture_output=True, text=True, timeout=100)
    return done.stdout + done.stderr


def find(pattern, text):
    found = re.search(pattern, text)
    return float(found.group(1)) if found else None


def fio(order):
    text = run(["fio", "--name=x", f"--filename={film}", f"--rw={order}", "--bs=4k", "--direct=1",
                "--ioengine=psync", "--size=16M", "--runtime=1", "--time_based", "--output-format=json"])
    return json.loads(text[text.index("{"):text.rindex("}") + 1])["jobs"][0]["read"]["lat_ns"]["mean"]


GIB = 1 << 30
THEIRS = {  # name: (command as told, how)
    "getppid": ("perf bench syscall basic --loop 5000000",
                lambda: 1e3 * find(r"([\d.]+) usecs/op", run("perf bench syscall basic --loop 5000000".split()))),
    "pipe_round": ("perf bench sched pipe --loop 200000",
                   lambda: 1e3 * find(r"([\d.]+) usecs/op", run("perf bench sched pipe --loop 200000".split()))),
    "bandwidth_copy_memcpy": ("perf bench mem memcpy --size 64MB --nr_loops 20 --function default",
                              lambda: GIB * find(r"([\d.]+) GB/sec", run(
                                  "perf bench mem memcpy --size 64MB --nr_loops 20 --function default".split()))),
    "bandwidth_write_memset": ("perf bench mem memset --size 128MB --nr_loops 20 --function default",
                               lambda: GIB * find(r"([\d.]+) GB/sec", run(
                                   "perf bench mem memset --size 128MB --nr_loops 20 --function default".split()))),
    "bandwidth_read_scalar": ("sysbench memory --memory-block-size=128M --memory-total-size=16G --memory-oper=read run",
                              lambda: (1 << 20) * find(r"\(([\d.]+) MiB/sec\)", run(
                                  "sysbench memory --memory-block-size=128M --memory-total-size=16G"
                                  " --memory-oper=read run".split()))),
    "bandwidth_write_scalar": ("sysbench memory --memory-block-size=128M --memory-total-size=16G --memory-oper=write run",
                               lambda: (1 << 20) * find(r"\(([\d.]+) MiB/sec\)", run(
                                   "sysbench memory --memory-block-size=128M --memory-total-size=16G"
                                   " --memory-oper=write run".split()))),
    "file_read_sequential": ("fio --rw=read --bs=4k --direct=1 --ioengine=psync --size=16M --runtime=1 --time_based",
                             lambda: fio("read")),
    "file_read_random": ("fio --rw=randread --bs=4k --direct=1 --ioengine=psync --size=16M --runtime=1 --time_based",
                         lambda: fio("randread")),
    "rtt_icmp_loopback": ("ping -f -q -c 20000 127.0.0.1 (its time over its packets)",
                          lambda: 1e6 * find(r"time (\d+)ms", run("ping -f -q -c 20000 127.0.0.1".split())) / 20000),
}


def ours():
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".json") as file:
        subprocess.run([onrush, "measure", "--quick", "--json", file.name], capture_output=True, timeout=120)
        entries = json.load(open(file.name))["runs"]
    rows = {row["id"]: row["measured"]["median"] for row in entries if row["entry"] == "row"}
    rows["pipe_round"] = 2 * (rows["switch_process_pipe"] + rows["pipe_alone"])
    return {name: rows[name] for name in THEIRS}


samples = []
for turn in range(turns):
    mine = ours()
    for name, (command, measure) in THEIRS.items():
        try:
            theirs = measure()
        except Exception as error:  # a missing instrument is told, not hidden
            theirs = f"{type(error).__name__}: {error}"
        samples.append({"turn": turn, "what": name, "ours": mine[name], "theirs": theirs, "command": command})
        print(samples[-1], file=sys.stderr)
subprocess.run(["rm", "-r", folder])
with open(out, "w") as file:
    head = {"command": " ".join(["others.py"] + sys.argv[1:]), "kernel": os.uname().release, "samples": None}
    file.write(json.dumps(head)[:-5] + "[\n" + ",\n".join(json.dumps(s) for s in samples) + "\n]}\n")
