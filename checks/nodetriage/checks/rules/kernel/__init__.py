"""Tables of rules for kernel lines, one module for each group of subsystems. Which check judges which lines:

| module | lines of | check |
|---|---|---|
| cpu.py | machine checks, Arm's aborts and SErrors, heat of a CPU | cpu_mce |
| memory.py | EDAC, memory failure, Soft offline, mce's words on memory | mem_errors |
| apei.py | CPER reports of the firmware (GHES, BERT), joined by rules/reports/cper.py and shared out by section | cpu_mce, mem_errors, pcie_errors |
| pcie.py, pci_slots.py, iommu.py | AER, DPC, EDR; hot-plug, power states, BARs; IOMMUs | pcie_errors |
| hangs.py | hung tasks, lockups, RCU, work queues, interrupts | kernel_hang |
| oops.py | oopses, corrupted memory structures, NMIs, panics | kernel_hang |
| platform.py | clocks, thermal shutdown, power, BMC interface, USB controllers, out of memory, swap | platform_errors |
| nvme.py, block.py, raid.py | NVMe; block layer, SCSI, ATA; md and device mapper | disk_errors |
| filesystems.py | ext4, XFS, Btrfs, FUSE | fs_errors |
| network_fs.py | NFS, Lustre, GPFS, WekaFS, BeeGFS, Ceph | fs_servers |
| mlx5.py, rdma.py, nics.py | mlx5; RDMA core, bnxt; Intel and other adapters, netdev | net_errors |
| nvidia.py | what the NVIDIA driver says beside Xid and SXid | gpu_driver_errors |
| other_gpus.py | amdgpu, i915/xe, habanalabs | accelerator_errors |

A table is a `KernelRules`; its order decides where two rules fit a line. How to write one:
- `text` begins with the driver's own words, behind the device prefix that `prefix` names (`model.kernel_rules.PREFIXES`):
  18 characters of its own before anything free, prefix included, or the tests refuse it. No alternation at the top
  level: put it in a group. A beginning of at least three literal characters lets the index skip the rule;
- named groups of `text` become evidence; `(?P<device>...)` is the part that the line is about;
- `examples` for each wording, from the kernel's own format; `never` for lines that look alike and mean something else;
- `severity` by what the words say was done: corrected and recovered are at most a warning, lasting faults of a device
  are critical where nothing can use it;
- a line that is only part of a report has fault "", and the check's `join` puts the report together.
The facts (formats, files, versions) are those of the kernel's source; docs/kernel-lines.md is made from these tables.
"""
