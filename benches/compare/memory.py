"""What a server on this machine takes, by what the kernel says."""

import os
import time
from pathlib import Path

# How often the machine is looked at to see how much it changes by itself, and for how long.
LOOKS = 10
WHILE = 1.0


def listener(port):
    """The process that listens on a port of this machine, if it can be seen."""
    wanted = f":{port:04X}"
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                sockets.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if any(os.readlink(file) in sockets for file in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    return None


def resident(pid):
    """The megabytes of a process that are in memory. None if it cannot be seen."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), None)


def available():
    """The megabytes that the whole machine has left. Sandboxes need not be children of their server: this sees all of them."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable:"))


def at_rest():
    """The megabytes that are left, and by how many that changes while nothing is done."""
    looks = []
    for _ in range(LOOKS):
        looks.append(available())
        time.sleep(WHILE / LOOKS)
    return sorted(looks)[LOOKS // 2], max(looks) - min(looks)


def taken(before, after):
    """The megabytes between two moments of rest; 0, if the machine changes by as many by itself."""
    used = before[0] - after[0]
    return used if used > before[1] + after[1] else 0
