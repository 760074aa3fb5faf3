"""Accelerators that are not NVIDIA's: amdgpu (RAS, resets), Intel's i915 and xe, habanalabs.

Source: drivers/gpu/drm/amd/amdgpu, drivers/gpu/drm/{i915,xe}, drivers/accel/habanalabs. amdgpu puts its own name before most
texts, from 6.8 also the number of the event in braces.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_SOCKET = r"(?:socket: \d{1,3}, (?:die: \d{1,3},? )?)?"
_WORTH = {
    "accelerator_failed": Severity.CRITICAL, "accelerator_memory_error": Severity.CRITICAL, "accelerator_hot": Severity.CRITICAL,
    "accelerator_memory_corrected": Severity.WARNING, "accelerator_reset": Severity.MAJOR, "accelerator_recovered": Severity.WARNING,
    "accelerator_memory_worn": Severity.MAJOR, "accelerator_work_hung": Severity.WARNING,
}  # fmt: skip
_LASTING = ("accelerator_failed", "accelerator_memory_worn", "accelerator_hot")
_DEV = "amdgpu 0000:83:00.0: "


def _rule(
    name: str,
    text: str,
    fault: str,
    source: str,
    *examples: str,
    severity: Severity | None = None,
    state: str = "",
    prefix: str = "pci",
    component: str = r"\g<device>",
    never: tuple[str, ...] = (),
) -> KernelRule:
    return KernelRule(
        name,
        text,
        fault,
        _WORTH[fault] if severity is None else severity,
        examples,
        component,
        prefix=prefix,
        state=state or ("lasting" if fault in _LASTING else "event"),
        source=source,
        never=never,
    )


def _amd(
    name: str,
    text: str,
    fault: str,
    *examples: str,
    severity: Severity | None = None,
    state: str = "",
    never: tuple[str, ...] = (),
) -> KernelRule:
    return _rule(
        f"amd.{name}",
        text,
        fault,
        "drivers/gpu/drm/amd/amdgpu",
        *(_DEV + e for e in examples),
        severity=severity,
        state=state,
        prefix="amdgpu",
        never=tuple(_DEV + n for n in never),
    )


RULES = KernelRules((
    _amd(
        "athub", r"uncorrectable hardware error ?\(ERREVENT_ATHUB_INTERRUPT\) detected", "accelerator_memory_error",
        "amdgpu: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "{1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
    ),
    _amd(
        "uncorrected", _SOCKET + r"(?P<errors>[1-9]\d{0,9}) (?:new )?uncorrectable hardware errors detected in (?P<block>\w{1,20}) block",
        "accelerator_memory_error", "amdgpu: socket: 0, die: 0 1 uncorrectable hardware errors detected in umc block",
        "amdgpu: {2}socket: 0, die: 1, 1 new uncorrectable hardware errors detected in umc block",
        "amdgpu: 1 uncorrectable hardware errors detected in umc block",
        never=("amdgpu: {3}socket: 0, die: 1, 1 uncorrectable hardware errors detected in total in umc block",),
    ),
    _amd(
        "corrected", _SOCKET + r"(?P<errors>[1-9]\d{0,9}) (?:new )?(?:correctable|deferred) hardware errors detected in (?P<block>\w{1,20}) block",
        "accelerator_memory_corrected", "amdgpu: {4}socket: 0, die: 1, 3 new correctable hardware errors detected in umc block",
        "{1}socket: 6, die: 1, 1533 new correctable hardware errors detected in xgmi_wafl block",
        "amdgpu: {5}socket: 0, die: 1, 1 new deferred hardware errors detected in umc block", state="corrected",
        never=("{1}socket: 6, die: 1, 1533 correctable hardware errors detected in total in xgmi_wafl block",),
    ),
    _amd("poison.made", r"Poison is created", "accelerator_memory_corrected", "amdgpu: {6}Poison is created"),
    _amd(
        "poison.used", r"(?:poison is consumed by client \d{1,5}, kick off|GPU reset for \w{1,20} RAS poison consumption is issued)",
        "accelerator_memory_error", "amdgpu: {7}poison is consumed by client 18, kick off gpu reset flow",
        "amdgpu: {8}GPU reset for gfx RAS poison consumption is issued!", severity=Severity.MAJOR,
    ),
    _amd(
        "ring.soft", r"ring [\w.]{1,30} timeout, but soft recovered", "accelerator_work_hung",
        "amdgpu: ring comp_1.0.0 timeout, but soft recovered", state="recovered",
    ),
    _amd(
        "smu", r"SMU: I'm not done with your (?:previous )?command", "accelerator_work_hung",
        "amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000012 SMN_C2PMSG_82:0x00000005",
        never=("amdgpu: SMU is initialized successfully!",),
    ),
    _amd(
        "ring", r"ring (?P<ring>[\w.]{1,30}) timeout, signaled seq=", "accelerator_reset",
        "amdgpu: ring sdma0 timeout, signaled seq=1042, emitted seq=1044",
    ),
    _rule(
        "amd.ring.old", r"\[drm:amdgpu_job_timedout \[amdgpu\]\] \*ERROR\* ring (?P<ring>[\w.]{1,30}) timeout, signaled seq=",
        "accelerator_reset", "drivers/gpu/drm/amd/amdgpu/amdgpu_job.c",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=1042, emitted seq=1044", prefix="", component="amdgpu",
    ),
    _amd(
        "reset", r"(?:GPU reset begin!|VRAM is lost due to GPU reset!)", "accelerator_reset", "amdgpu: GPU reset begin!",
        "amdgpu: VRAM is lost due to GPU reset!",
    ),
    _rule(
        "amd.vram.old", r"\[drm\] VRAM is lost due to GPU reset!", "accelerator_reset", "drivers/gpu/drm/amd/amdgpu/amdgpu_device.c",
        "[drm] VRAM is lost due to GPU reset!", prefix="", component="amdgpu",
    ),
    _amd("reset.done", r"GPU reset\(\d{1,10}\) succeeded", "accelerator_recovered", "amdgpu: GPU reset(1) succeeded!", state="recovered"),
    _amd(
        "reset.failed", r"(?:GPU reset\(\d{1,10}\) failed|GPU reset end with ret = (?!0\b)-?\d)", "accelerator_failed",
        "amdgpu: GPU reset(1) failed", "amdgpu: GPU reset end with ret = -62", never=("amdgpu: GPU reset end with ret = 0",),
    ),
    _amd("lost", r"(?:device lost from bus!|Fatal error during GPU init)", "accelerator_failed", "amdgpu: device lost from bus!",
         "amdgpu: Fatal error during GPU init"),
    _amd(
        "records.near", r"RAS records:\d{1,6} exceeds \d{1,3}% of threshold", "accelerator_memory_worn",
        "amdgpu: RAS records:231 exceeds 90% of threshold:256",
    ),
    _amd(
        "records.over", r"RAS records:\d{1,6} exceed threshold", "accelerator_failed",
        "amdgpu: RAS records:260 exceed threshold:256, GPU will not be initialized. Replace this GPU or increase the threshold",
    ),
    _amd(
        "boot", r"socket: \d{1,3}, aid: \d{1,3}, (?:hbm: \d{1,3}, )?fw_status: 0x[0-9a-f]{1,8}, (?P<problem>[\w ]{1,60}failed)",
        "accelerator_failed", "amdgpu: socket: 0, aid: 1, hbm: 1, fw_status: 0x20, hbm memory test failed",
        "amdgpu: socket: 0, aid: 1, fw_status: 0x8, xgmi link training failed",
    ),
    _amd(
        "hot", r"ERROR: (?:GPU over temperature range\(SW CTF\)|GPU HW Critical Temperature Fault|System is going to shutdown due to GPU)",
        "accelerator_hot", "amdgpu: ERROR: GPU over temperature range(SW CTF) detected!",
        "amdgpu: ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!",
    ),
    _rule(
        "xe.wedged", r"\[drm\] \*ERROR\* CRITICAL: Xe has declared device ", "accelerator_failed", "drivers/gpu/drm/xe/xe_device.c",
        "xe 0000:18:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:18:00.0 as wedged.\nIOCTLs and executions are blocked.",
    ),
    _rule(
        "xe.job", r"\[drm\] (?:Tile\d{1,2}: )?GT\d{1,2}: Timedout job: seqno=", "accelerator_work_hung", "drivers/gpu/drm/xe/xe_guc_submit.c",
        "xe 0000:18:00.0: [drm] GT0: Timedout job: seqno=4294967169, lrc_seqno=4294967169, guc_id=4, flags=0x0 in python3 [4711]",
    ),
    _rule(
        "i915.hang", r"\[drm\] GPU HANG: ecode ", "accelerator_work_hung", "drivers/gpu/drm/i915/i915_gpu_error.c",
        "i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in python3 [4711]",
    ),
    _rule(
        "i915.failed", r"\[drm\] \*ERROR\* Failed to reset chip", "accelerator_failed", "drivers/gpu/drm/i915/gt/intel_reset.c",
        "i915 0000:03:00.0: [drm] *ERROR* Failed to reset chip",
    ),
    _rule("habana.reset", r"Going to reset device$", "accelerator_reset", "habanalabs/common/device.c",
          "habanalabs 0000:33:00.0: Going to reset device"),
    _rule(
        "habana.unusable", r"(?:Hard reset )?Failed to reset! Device is NOT usable", "accelerator_failed", "habanalabs/common/device.c",
        "habanalabs 0000:33:00.0: Hard reset Failed to reset! Device is NOT usable", "habanalabs 0000:33:00.0: Failed to reset! Device is NOT usable",
    ),
    _rule(
        "habana.init",
        r"habanalabs: Failed to initialize \w{1,20}\. Device (?P<device>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) is NOT usable",
        "accelerator_failed", "habanalabs/common/device.c", "habanalabs: Failed to initialize accel0. Device 0000:33:00.0 is NOT usable!", prefix="",
    ),
))  # fmt: skip
