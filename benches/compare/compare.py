#!/usr/bin/env python3
"""What `make bench-compare` does: the same work against two servers that speak this API, side by side in one run, and a
table of ratios.

One is the server of this repository, started here on a directory of its own with the scripted model, unless --ours names
one that runs. The other is --base. Without --base only ours is measured, and there are no ratios.

usage: compare.py PROGRAMS [--base URL --key KEY] [--ours URL --ours-key KEY] [--rounds N] [--large] [--json FILE]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wire import Refused, Server
from workload import Workload

SMALL = [(10, 100_000), (1_000, 50_000)]
LARGE = SMALL + [(10_000, 50_000)]
PATIENCE = 60


class Ours:
    """The server of this repository with the scripted model, in a temporary directory."""

    def __init__(self, programs):
        self.ash = programs / "ash"
        self.directory = tempfile.TemporaryDirectory(prefix="ash-compare-", ignore_cleanup_errors=True)
        self.running = []
        # What this machine's own server is told, its key, its bucket and its database, is not for this one.
        self.outside = {name: value for name, value in os.environ.items() if not name.startswith("ASH_")}

    def start(self, *words, **environment):
        log = Path(self.directory.name) / f"{words[0]}.log"
        with open(log, "wb") as written:
            process = subprocess.Popen(
                [self.ash, *words], cwd=self.directory.name, stdout=written, stderr=subprocess.STDOUT,
                env={**self.outside, **environment},
            )
        self.running.append(process)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and process.poll() is None:
            address = re.search(r"listening on (http://\S+)", log.read_text())
            if address:
                return address.group(1)
            time.sleep(0.01)
        raise SystemExit(f"`ash {words[0]}` does not start:\n{log.read_text()}")

    def can_isolate(self):
        told = subprocess.run(
            [self.ash, "doctor", "--json"], cwd=self.directory.name, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False, env=self.outside,
        ).stdout
        checks = json.loads(told)["checks"]
        return all(check["verdict"] != "problem" for check in checks if check["name"] == "isolation")

    def serve(self):
        model = self.start("model", "--port", "0")
        data = Path(self.directory.name) / "data"
        openly = []
        if not self.can_isolate():
            print("agents cannot be isolated here: ours runs them as plain children")
            openly = ["--dangerously-no-sandbox"]
        url = self.start(
            "serve", "--port", "0", *openly, ANTHROPIC_BASE_URL=model, ASH_PERMISSION_MODE="bypassPermissions", ANTHROPIC_API_KEY="scripted",
            ASH_DATA_DIR=str(data), ASH_DEFAULT_RUNTIME="builtin", HOME=self.directory.name,
        )
        return Server("ours", url, (data / "initial-api-key").read_text().strip())

    def end(self):
        for process in reversed(self.running):
            # Twice, so that no sandbox is left to go on without a server.
            for _ in range(2):
                process.terminate()
                time.sleep(0.2)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
        self.directory.cleanup()


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def shown(value, unit):
    if value is None:
        return "-"
    if value == 0:
        return "too small to tell"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".replace(" /s", "/s")


def table(work, servers):
    """The figures as text: a row for each measurement, and how many times better ours is."""
    compared = len(servers) == 2
    heads = ["what", "n"] + [f"{server.name} p50 / p99" for server in servers] + (["ratio"] if compared else [])
    rows = []
    for what, taken in work.figures.items():
        of, unit = taken["of"], taken["unit"]
        row = [what, str(max(map(len, of.values())))]
        middles = []
        for server in servers:
            values = of.get(server.name)
            if not values:
                row.append("-")
                middles.append(None)
                continue
            middles.append(quantile(values, 0.5))
            many = len(values) > 1
            row.append(
                f"{shown(middles[-1], unit)} / {shown(quantile(values, 0.99), unit)}" if many
                else shown(middles[-1], unit)
            )
        if compared:
            row.append(ratio(middles, unit))
        rows.append(row)
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *rows]]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def ratio(middles, unit):
    """How many times better ours, the first, is than the other."""
    ours, base = middles
    if not ours or not base:
        return "-"
    better = ours / base if unit == "/s" else base / ours
    return f"{better:.2f}x"


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parse.add_argument("programs", type=Path, help="the directory that has ash and ash-bridge")
    parse.add_argument("--base", help="the address of the server that ours is compared with")
    parse.add_argument("--key", default=os.environ.get("KEY", ""), help="its API key")
    parse.add_argument("--ours", help="a server of ours that runs, instead of one that is started")
    parse.add_argument("--ours-key", default="", help="its API key")
    parse.add_argument("--rounds", type=int, default=15)
    parse.add_argument("--large", action="store_true", help="also a workspace of 10,000 files and 500 MB")
    parse.add_argument("--json", type=Path, help="a file for every single figure")
    told = parse.parse_args()
    if told.rounds < 1:
        parse.error("--rounds has to be 1 at least")

    def server(name, url, key):
        try:
            return Server(name, url, key)
        except ValueError as error:
            parse.error(f"--{name}: {error}")

    base = server("base", told.base, told.key) if told.base else None
    ours = server("ours", told.ours, told.ours_key) if told.ours else None
    started = None if ours else Ours(told.programs)
    try:
        ours = ours or started.serve()
        servers = [ours] + ([base] if base else [])
        for server in servers:
            try:
                about = server.request("GET", "/health")
            except (Refused, OSError) as error:
                raise SystemExit(f"{server.url} does not answer: {error}") from error
            print(f"{server.name}: {server.url}, version {about.get('version', '?')}")
        print(f"each takes its turn, {told.rounds} rounds\n")
        work = Workload(servers, told.rounds, LARGE if told.large else SMALL)
        try:
            work.play(lambda step: print(f"... {step}", file=sys.stderr))
        except (Refused, OSError) as error:
            raise SystemExit(f"it cannot be measured: {error}") from error
    finally:
        if started:
            started.end()

    print(table(work, servers))
    if base:
        print("\nratio: how many times better ours is, by the medians; below 1 the other one is better")
    for (what, name), why in work.refusals.items():
        print(f"\n{name}, {what}: {why}")
    if told.json:
        told.json.write_text(json.dumps(work.figures, indent=2) + "\n")
    # What ours refuses is a defect here, and no figure.
    return 1 if any(name == "ours" for _, name in work.refusals) else 0


if __name__ == "__main__":
    sys.exit(main())
