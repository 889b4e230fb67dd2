"""What an engine spends on a packet of a film that lies in an object store, and of the same film in a folder, once it is in memory.

    python3 warm.py ONRUSH ONRUSH_LAB S3_SERVER FILM [VIEWERS [ROUNDS]]

Starts one server of each kind on loopback, plays the film once to warm it, and then has viewers watch one and the other in turn.
Prints JSON: of each round the engine's processor time a packet in nanoseconds, and their ratio; and how many bytes of
the film the store was asked for while they watched."""
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

onrush, lab, s3, film = (pathlib.Path(it).resolve() for it in sys.argv[1:5])
viewers = int(sys.argv[5]) if len(sys.argv) > 5 else 200
rounds = int(sys.argv[6]) if len(sys.argv) > 6 else 15
KEY, SECRET = "a-key", "a-secret"


class Server:
    def __init__(self, library, environment):
        options = ["--rtsp", "127.0.0.1:0", "--http", "off", "--metrics", "127.0.0.1:0", "--state", "off"]
        options += ["--connections-per-address-max", "20000"]
        log = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen(
            [onrush, "serve", library, *options], stdout=log, stderr=subprocess.STDOUT, env=os.environ | environment)
        said = ""
        while "stopping" not in said:
            assert self.process.poll() is None, said
            time.sleep(0.1)
            said = pathlib.Path(log.name).read_text()
        self.rtsp = re.search(r"(rtsp://127\S+/)", said)[1]
        self.metrics = re.search(r"(http://\S+/metrics)", said)[1]
        self.sending = re.search(r"sending +(\S.*)", said)[1]

    def counted(self):
        with urllib.request.urlopen(self.metrics) as page:
            text = page.read().decode()
        total = lambda name: sum(float(it) for it in re.findall(rf"^{name}(?:{{.*?}})? (\S+)$", text, re.M))
        return [total(it) for it in (
            "onrush_engine_cpu_seconds_total", "onrush_packets_total", "onrush_objects_received_bytes_total")]

    def watched(self):
        """The engine's nanoseconds a packet while viewers watch, and what the store gave meanwhile."""
        before = self.counted()
        load = [lab, "load", self.rtsp + film.name, "--clients", str(viewers), "--time", "10s"]
        subprocess.run(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        cpu_s, packets, store_bytes = (now - then for now, then in zip(self.counted(), before))
        return cpu_s * 1e9 / packets, packets, store_bytes


with tempfile.TemporaryDirectory() as folder:
    bucket = pathlib.Path(folder, "films")
    bucket.mkdir()
    shutil.copy(film, bucket / film.name)
    store = subprocess.Popen([s3, folder, KEY, SECRET], stdout=subprocess.PIPE, text=True)
    address = store.stdout.readline().split()[-1]
    environment = {
        "AWS_ENDPOINT_URL": f"http://{address}", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    time.sleep(2)
    servers = {"folder": Server(str(bucket), {}), "store": Server("s3://films", environment)}
    try:
        # Until the store is asked for nothing more.
        for server in servers.values():
            assert any(server.watched()[2] == 0 for _ in range(10))
        version = subprocess.run([onrush, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        host = {"kernel": os.uname().release, "processors": os.cpu_count(), "program": version}
        host |= {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        host |= {"sending": {name: server.sending for name, server in servers.items()}}
        result = host | {"viewers": viewers, "packets": [], "folder_ns": [], "store_ns": [], "store_bytes": 0}
        for number in range(rounds):
            order = list(servers)[:: 1 if number % 2 else -1]
            for name in order:
                cost_ns, packets, store_bytes = servers[name].watched()
                result[f"{name}_ns"].append(round(cost_ns, 1))
                result["packets"].append(int(packets))
                result["store_bytes"] += int(store_bytes)
        ratios = [there / here for here, there in zip(result["folder_ns"], result["store_ns"])]
        result["ratios"] = [round(it, 3) for it in ratios]
        # The median's interval, of 95 of 100, by the order of the ratios alone.
        least = int((rounds - 1.96 * rounds**0.5) / 2)
        between = sorted(ratios)[least], sorted(ratios)[-1 - least]
        result["ratio"] = round(statistics.median(ratios), 3)
        result["interval"] = [round(it, 3) for it in between]
        print(json.dumps(result))
    finally:
        for server in servers.values():
            server.process.terminate()
        store.terminate()
