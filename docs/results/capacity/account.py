"""The account of each number that was tried: python3 account.py FILE..."""
import json
import sys

print("| file | burst | viewers | sending | control | disk and images | its processor busy | the other one | latest packet | held |")
print("|---|---|---|---|---|---|---|---|---|---|")
for path in sys.argv[1:]:
    with open(path) as file:
        runs = json.load(file)["runs"]
    for run in sorted(runs, key=lambda run: (run["burst_ns"], run["clients"])):
        account = run["account"]

        def cores(*threads):
            ns = sum(account["threads"][name] for name in threads)
            return ns / account["wall_ns"]

        cells = [
            path.removesuffix(".json"),
            f"{run['burst_ns'] // 1_000_000} ms",
            run["clients"],
            f"{cores('onrush-send'):.2f}",
            f"{cores('onrush-control'):.3f}",
            f"{cores('onrush-build'):.2f}",
            f"{account['core_busy_ns'] / account['wall_ns']:.2f}",
            f"{account['other_cores_busy_ns'] / account['wall_ns']:.2f}",
            f"{run['load']['totals']['lateness_ns_max'] / 1e6:.1f} ms",
            "no" if run["missed"] else "yes",
        ]
        print("|", " | ".join(map(str, cells)), "|")
