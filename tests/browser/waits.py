#!/usr/bin/env python3
"""What viewers in Chromium wait for, beside the bounds.

    waits.py take ONRUSH FOLDER [--films N] [--pictures N] [--film FILE]
    waits.py FILE...

`take` starts that server on loopback with copies of a film, and a channel that ffmpeg publishes,
has measure.mjs measure (first `npm ci --prefix tests/browser`), and keeps all samples in
FOLDER/first-frame.json and FOLDER/glass-to-glass.json. Then, as with FILEs, prints them beside the
bounds. A bound is kept if 95 of 100 samples keep it. Ends with 1 if one is missed, 2 if it could not
be measured.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILM = HERE.parent.parent / "media" / "demo.mp4"
SCHEMA_VERSION = 1
FILMS_MAX = 1000
PICTURES_MAX = 100_000
# Bounds every wait for the server; never a measure.
WAIT_S = 60

BOUNDS_MS = {
    "click to first picture, cold index": 1000,
    "click to first picture, warm index": 500,
    "drawn to shown, low-latency HLS": 2000,
}


def unusable(text):
    print(f"waits.py: {text}", file=sys.stderr)
    sys.exit(2)


class Server:
    """A server of a folder, on ports of its own choice."""

    def __init__(self, program, root):
        command = [program, "serve", root, "--state=off", "--cache=64MiB"]
        command += [f"--{name}=127.0.0.1:0" for name in ("rtsp", "http", "metrics")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        self.lines, self.is_ready = [], threading.Event()
        threading.Thread(target=self.read, daemon=True).start()
        self.is_ready.wait(WAIT_S)

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("metrics "):
                self.is_ready.set()
        self.is_ready.set()

    def address(self, of):
        pattern = re.compile(rf"{of}.*?(127\.0\.0\.1:[0-9]+)")
        found = [match[1] for match in map(pattern.search, self.lines) if match]
        if not found:
            unusable("the server does not listen; it says:\n" + "\n".join(self.lines[-20:]))
        return found[0]

    def counter(self, name):
        url = f"http://{self.address('metrics')}/metrics"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}[ {{]", line))

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()


def measured(name, site, count, of):
    command = ["node", HERE / "measure.mjs", name, site, str(count), *of]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        unusable(f"{name} was not measured, see above")
    return json.loads(done.stdout)


def machine(program):
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True)
    return {
        "server": version.stdout.strip(),
        "cpu": cpu[1] if cpu else platform.machine(),
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
        "command": " ".join(sys.argv),
    }


def take(options):
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = machine(options.program)
    with tempfile.TemporaryDirectory(prefix="onrush-waits-") as root:
        names = [f"film-{number:03}.mp4" for number in range(options.films)]
        for name in names:
            copy = shutil.copyfile(options.film, Path(root) / name)
            # So that it is not taken for one that is written still.
            an_hour_ago = time.time() - 3600
            os.utime(copy, (an_hour_ago, an_hour_ago))
        server = Server(options.program, root)
        try:
            site = f"http://{server.address('http://')}/"
            if server.counter("onrush_index_read_bytes_total") > 0:
                unusable("the server has looked into films before anybody asked: none is cold")
            first = measured("first-frame", site, 2, names)
            channel = f"rtsp://{server.address('rtsp://')}/live/clock"
            glass = measured("glass-to-glass", site, options.pictures, [channel])
        finally:
            server.stop()
    files = [folder / "first-frame.json", folder / "glass-to-glass.json"]
    for file, document in zip(files, (first, glass)):
        file.write_text(json.dumps({**document, **about}, indent=1) + "\n")
    return files


def samples(files):
    """In ms, by what was waited for."""
    of = {name: [] for name in BOUNDS_MS}
    cold, warm, live = BOUNDS_MS
    for file in files:
        document = json.loads(Path(file).read_text())
        if document.get("schema_version") != SCHEMA_VERSION or "samples" not in document:
            unusable(f"{file}: not a record of this program; take it again")
        for sample in document["samples"]:
            which = {"cold": cold, "warm": warm}.get(sample.get("index"), live)
            of[which].append(sample["ms"])
    return of


def report(files):
    """Whether all bounds are kept of which there are samples."""
    document = json.loads(Path(files[0]).read_text())
    print("; ".join(str(document.get(key)) for key in ("cpu", "browser", "server", "at")))
    print(f"{'ms':36}{'samples':>8}{'least':>9}{'median':>9}{'95 of 100':>11}{'largest':>9}")
    verdicts = []
    for name, values in samples(files).items():
        if not values:
            continue
        values = sorted(values)
        at = lambda part: values[min(len(values) - 1, int(part * len(values)))]
        row = (values[0], at(0.5), at(0.95), values[-1])
        least, median, most, largest = (f"{value:.0f}" for value in row)
        print(f"{name:36}{len(values):>8}{least:>9}{median:>9}{most:>11}{largest:>9}")
        verdicts.append((at(0.95) <= BOUNDS_MS[name], name, most))
    for kept, name, most in verdicts:
        print(f"{'kept' if kept else 'missed'}: {name}: {most} ms, bound {BOUNDS_MS[name]} ms")
    return bool(verdicts) and all(kept for kept, _, _ in verdicts)


def between(least, most):
    def number(text):
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text}: from {least} to {most}")
        return value
    return number


def main():
    if sys.argv[1:2] != ["take"]:
        parser = argparse.ArgumentParser(usage=__doc__)
        parser.add_argument("files", nargs="+")
        files = parser.parse_args().files
    else:
        parser = argparse.ArgumentParser(usage=__doc__)
        parser.add_argument("take")
        parser.add_argument("program")
        parser.add_argument("folder")
        parser.add_argument("--films", type=between(1, FILMS_MAX), default=20)
        parser.add_argument("--pictures", type=between(1, PICTURES_MAX), default=500)
        parser.add_argument("--film", default=FILM)
        files = take(parser.parse_args())
    sys.exit(0 if report(files) else 1)


if __name__ == "__main__":
    main()
