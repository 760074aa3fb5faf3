"""How many records of the kernel log are parsed in a second of CPU: `python bench/kmsg.py`."""

import time

from nodetriage.agent.machine.kmsg import parse
from nodetriage.checks.readers import nvidia_log

COUNT = 200_000
RECORD = (
    b"4,1227,437812449932,-,caller=T1946;NVRM: Xid (PCI:0000:01:00): 43, pid=1814139, name=python3, Ch 00000018\n"
    b" SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n"
)
RECORDS = {"plain": RECORD, "escaped": RECORD.replace(b"python3", rb"\xc3\xa9\x0apython3")}


def main() -> None:
    for name, record in RECORDS.items():
        started_s = time.process_time()
        for _ in range(COUNT):
            parse(record)
        print(f"{name:<10} {COUNT / (time.process_time() - started_s):10,.0f} records/s")
    text = parse(RECORD)
    assert text is not None
    started_s = time.process_time()
    for _ in range(COUNT):
        nvidia_log.parse(text.text)
    print(f"{'xid lines':<10} {COUNT / (time.process_time() - started_s):10,.0f} lines/s")


if __name__ == "__main__":
    main()
