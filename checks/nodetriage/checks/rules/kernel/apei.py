"""Reports of the firmware (APEI: GHES, eMCA, BERT), record by record; rules/reports/cper.py joins them, by number.

Source: drivers/firmware/efi/cper.c and its cper-arm.c, cper-x86.c; drivers/acpi/apei/ghes.c, bert.c; UEFI specification,
appendix N. The numbered lines of one report carry the same number, and lines of others may come between. Lines without
a number are those of BERT: they tell of the boot before this one.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_CPER = "drivers/firmware/efi/cper.c"
LINES = (
    KernelRule(
        "cper.line", r"\{(?P<number>\d{1,10})\}\[Hardware Error\]: (?P<said>.*)", "", Severity.INFO,
        (
            "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 2",
            "{1}[Hardware Error]: event severity: fatal", "{7}[Hardware Error]:   section_type: PCIe error",
        ),
        "firmware", source=f"{_CPER}:cper_estatus_print",
        never=("amdgpu 0000:1b:00.0: {1}[Hardware Error]: Accelerator Check Architecture events logged",),
    ),
    KernelRule(
        "cper.bert", r"BERT: Error records from previous boot", "", Severity.INFO,
        ("BERT: Error records from previous boot:",), "firmware", source="drivers/acpi/apei/bert.c:bert_print_all",
    ),
    KernelRule(
        "cper.bert_line", r"\[Hardware Error\]: (?P<said>(?:event severity: | Error \d{1,3}, type: |  ).*)", "",
        Severity.INFO,
        ("[Hardware Error]: event severity: fatal", "[Hardware Error]:   section_type: memory error"), "firmware",
        source=f"{_CPER}:cper_estatus_print", never=("[Hardware Error]: Corrected error, no action required.",),
    ),
)  # fmt: skip
# What the firmware's driver says of itself, and of errors that it could not hand on.
DRIVER = (
    KernelRule(
        "ghes.unhandled", r"\[Firmware Warn\]: GHES: Unhandled processor error type ", "firmware_error",
        Severity.WARNING, ("[Firmware Warn]: GHES: Unhandled processor error type 0x02: cache error",), "firmware",
        source="drivers/acpi/apei/ghes.c:ghes_handle_arm_hw_error",
    ),
    KernelRule(
        "ghes.unreadable", r"\[Firmware Warn\]: GHES: Failed to read error status block", "firmware_error",
        Severity.WARNING, ("[Firmware Warn]: GHES: Failed to read error status block!",), "firmware", state="lasting",
        source="drivers/acpi/apei/ghes.c:__ghes_read_estatus",
        never=("GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.",),
    ),
    KernelRule(
        "ghes.nvidia", r"nvidia-ghes (?P<device>[\w.:-]{1,40}): severity: [01]$", "firmware_error", Severity.WARNING,
        ("nvidia-ghes NVDA2012:00: severity: 0",), "firmware", versions="7.0",
        source="drivers/acpi/apei/ghes-nvidia.c:nvidia_ghes_print_error",
        never=("nvidia-ghes NVDA2012:00: severity: 2",),
    ),
)  # fmt: skip
LINES_RULES = KernelRules(LINES)
RULES = KernelRules((*LINES, *DRIVER))
