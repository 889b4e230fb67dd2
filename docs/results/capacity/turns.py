"""What the files of a folder of turns say, `before-N.json` and `after-N.json`: python3 turns.py FOLDER"""
import itertools
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
print("| file | let in | late | lost | packets of a stream together | ns a packet | read from the disk, MB/s | sent, MB/s |")
print("|---|---|---|---|---|---|---|---|")
for turn in itertools.count(1):
    if not (folder / f"before-{turn}.json").exists():
        break
    for build in ["before", "after"]:
        path = folder / f"{build}-{turn}.json"
        record = json.loads(path.read_text())
        budget_ns = record["settings"]["lateness_ns_max"]
        [run] = record["runs"]
        load, account = run["load"], run["account"]
        totals = load["totals"]
        late = sum(count for edge_ns, count in load["lateness"] if edge_ns >= budget_ns)
        cells = [
            path.stem,
            load["watching"],
            f"{late / sum(count for _, count in load['lateness']) * 100:.3f} %",
            totals["lost"],
            totals["burst_packets_max"],
            f"{load['server']['cpu_ns'] / load['packets_steady']:.0f}",
            f"{account['disk_bytes'] / account['wall_ns'] * 1e3:.0f}",
            f"{load['packets_steady'] / load['wall_ns'] * totals['bytes'] / totals['packets'] * 1e3:.0f}",
        ]
        print("|", " | ".join(map(str, cells)), "|")
