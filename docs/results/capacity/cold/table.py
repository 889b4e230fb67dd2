"""What the six files here say: python3 cold/table.py"""
import json
import pathlib

print("| file | let in | late | packets of a stream together | read from the disk, MB/s | sent, MB/s |")
print("|---|---|---|---|---|---|")
for turn in "123":
    for build in ["before", "after"]:
        path = pathlib.Path(__file__).with_name(f"{build}-{turn}.json")
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
            totals["burst_packets_max"],
            f"{account['disk_bytes'] / account['wall_ns'] * 1e3:.0f}",
            f"{load['packets_steady'] / load['wall_ns'] * totals['bytes'] / totals['packets'] * 1e3:.0f}",
        ]
        print("|", " | ".join(map(str, cells)), "|")
