"""What a line is worth: the catalogue, corrected by the text."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodetriage.checks.model import Severity
from nodetriage.checks.readers.nvidia_log import parse
from nodetriage.checks.rules import nvlink5
from nodetriage.checks.rules.xid_rules import Assessment, assess


def worth(code: int, rest: str, pci: str = "0000:01:00") -> Assessment:
    line = parse(f"NVRM: Xid (PCI:{pci}): {code}, {rest}")
    assert line
    found = assess(line)
    assert found
    return found


def switch(code: int, rest: str) -> Assessment:
    line = parse(f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {code}, {rest}")
    assert line
    found = assess(line)
    assert found
    return found


@pytest.mark.parametrize(
    ("action", "severity"),
    [
        (1, "MAJOR"),
        (2, "MAJOR"),
        (3, "MAJOR"),
        (4, "CRITICAL"),
        (5, "WARNING"),
        (6, "MAJOR"),
        (7, "MAJOR"),
        (9, "WARNING"),
    ],
)
@pytest.mark.parametrize("words", ["GPU Reset Required", "PF FLR", "OS Reboot", "none of these"])
def test_a_recovery_action_is_known_by_its_number_whatever_the_words(action: int, severity: str, words: str) -> None:
    found = worth(154, f"GPU recovery action changed from 0x0 (None) to 0x{action:x} ({words})")

    assert (found.fault, found.severity, found.over) == ("gpu_recovery_action", Severity[severity], False)
    assert (found.evidence["recovery_action"], found.evidence["recovery_action_before"]) == (action, 0)


def test_a_recovery_action_of_zero_takes_the_fault_back() -> None:
    assert worth(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)").over


@pytest.mark.parametrize("told", ["caused by previous Xid 149", ", Info 0x4c014, caused by previous 149"])
def test_a_preempted_channel_names_its_cause_and_stays_without_weight(told: str) -> None:
    found = worth(45, f"pid=60122, name=python3, Ch 00000001 {told}")

    assert (found.fault, found.severity) == ("gpu_xid_application", Severity.INFO)
    assert found.evidence == {"cause_xid": 149}


NAMED = {
    79: "GPU has fallen off the bus.",
    94: "Contained: CE User Channel (0x9). RST: Yes, D-RST: No",
    64: "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped",
    74: "NVLink: fatal error detected on link 14(0x10000, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    31: "Ch 00000008, MMU Fault",
    154: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
}


@given(st.sampled_from(sorted(NAMED)), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=15))
@example(94, "a\nb")
@example(94, "x, RST: No, D-R")
@example(154, "from 0x1 to 0x0")
@example(79, "): 31, Ch 00000")
def test_no_process_name_makes_a_line_worth_more_or_less(code: int, name: str) -> None:
    found = worth(code, f"pid=7, name={name}, {NAMED[code]}")
    plain = worth(code, f"pid=7, name=python3, {NAMED[code]}")

    assert (found.fault, found.severity, found.over) == (plain.fault, plain.severity, plain.over)


@pytest.mark.parametrize(
    ("flags", "severity"),
    [
        ("RST: No, D-RST: No", "MAJOR"),
        ("RST: Yes, D-RST: No", "CRITICAL"),
        ("RST: No, D-RST: Yes", "CRITICAL"),
        ("", "MAJOR"),
    ],
)
def test_a_contained_error_is_high_only_where_the_driver_asks_for_a_reset(flags: str, severity: str) -> None:
    assert worth(94, f"Contained: SM (0x1). {flags}").severity is Severity[severity]


def test_an_uncontained_error_is_high_even_where_no_reset_is_asked_for() -> None:
    assert worth(95, "Uncontained: LTC TAG (0x2). RST: No, D-RST: No").severity is Severity.CRITICAL


def test_a_row_that_already_waits_for_its_remap_has_not_failed() -> None:
    text = "Row Remapper: (0x00000002eebc4100) - Attempting to remap a row that is already pending remapping."

    assert (worth(64, text).fault, worth(64, text).severity) == ("gpu_row_remap_pending", Severity.MAJOR)


def test_a_bank_without_spare_rows_has_failed() -> None:
    text = "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped"

    assert (worth(64, text).fault, worth(64, text).severity) == ("gpu_row_remap_failed", Severity.CRITICAL)


def test_the_lines_that_qualify_a_48_are_the_same_fault_and_say_which_memory() -> None:
    dram = worth(171, "GDDR, Uncorrectable DRAM error in FBPA 3 subpartition 0 physAddr 0x2a40c7e80")
    sram = worth(172, "Uncorrectable SRAM error")

    assert dram.fault == sram.fault == worth(48, "An uncorrectable double bit error (DBE)").fault
    assert (dram.evidence, sram.evidence) == ({"memory": "DRAM"}, {"memory": "SRAM"})


@pytest.mark.parametrize(
    ("register", "severity", "victim"),
    [(0x10000, "CRITICAL", None), (0x0, "CRITICAL", None), (1 << 23, "WARNING", None), (1 << 20, "WARNING", True)],
)
def test_an_nvlink_error_of_harmless_or_sympathetic_bits_is_no_reason_to_drain(register, severity, victim) -> None:
    found = worth(74, f"NVLink: fatal error detected on link 14(0x{register:x}, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)")

    assert (found.severity, found.evidence.get("victim")) == (Severity[severity], victim)
    assert found.evidence["link"] == 14


@pytest.mark.parametrize(
    ("code", "rest", "severity"),
    [
        # decoded with the masks of drivers before r575
        (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0 0x00100000 0x4)", "WARNING"),
        (144, "SAW_MVB Fatal XC0 i0 Link 02 (0x00000021 0x00000002 0x0 0x0 0x0 0x0)", "CRITICAL"),
        # and of those since
        (144, "SAW_MVB Nonfatal XC0 i0 Link 02 (0x00000001 0x00000004 0x0 0x0 0x0 0x0)", "INFO"),
        (144, "SAW_MVB Fatal XC0 i0 Link 02 (0x00000001 0x00000010 0x0 0x0 0x0 0x0)", "CRITICAL"),
        # the same error, escalated
        (145, "RLW_RXPIPE Fatal XC0 i0 Link 13 (0x000004c2 0x00000001 0x0 0x0 0x0 0x0)", "CRITICAL"),
        # padded columns, no link
        (149, "NETIR            Fatal    XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0 0x0 0x0)", "CRITICAL"),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x0 0x0 0x0 0x0)", "WARNING"),
        # nothing in the table: the word decides
        (146, "TLW_NEW Fatal XC0 i0 Link 01 (0x0000ffff 0x12345678 0x0 0x0 0x0 0x0)", "CRITICAL"),
        (146, "TLW_NEW Nonfatal XC0 i0 Link 01 (0x0000ffff 0x12345678 0x0 0x0 0x0 0x0)", "WARNING"),
        # neither: the catalogue
        (150, "cut sh", "CRITICAL"),
        (147, "cut sh", "WARNING"),
    ],
)
def test_an_nvlink5_error_is_decoded_with_both_sets_of_masks(code: int, rest: str, severity: str) -> None:
    found = worth(code, rest, "0008:01:00")

    assert (found.fault, found.severity) == ("gpu_nvlink_error", Severity[severity])


@given(st.integers(144, 150), st.text(max_size=40), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_no_nvlink5_line_makes_the_decoder_raise(code: int, unit: str, intr: int, status: int) -> None:
    rest = f"{unit} Fatal XC0 i0 Link 01 (0x{intr:08x} 0x{status:08x} 0x0)"

    severity, _ = nvlink5.judge_line(code, rest, Severity.WARNING)

    assert severity in Severity


def test_the_guide_is_believed_before_the_word_of_a_switch() -> None:
    # A limit of corrected errors prints Fatal, though the guide calls it harmless.
    assert switch(19049, "Fatal, Link 02 TX SYS NCISOC ECC LIMIT").severity is Severity.INFO


def test_a_code_that_the_guide_does_not_know_is_what_its_word_says() -> None:
    assert switch(11002, "Fatal, Link 02 ingress").severity is Severity.CRITICAL
    assert switch(11002, "Non-fatal, Link 02 ingress").severity is Severity.INFO


def test_the_detail_and_data_lines_of_a_switch_error_are_the_same_fault_as_its_first() -> None:
    first = switch(20034, "Fatal, Link 30 LTSSM Fault Up")

    assert first.severity is Severity.CRITICAL
    assert {
        switch(20034, "Severity 1 Engine instance 60 Sub-engine instance 00").fault,
        switch(20034, "Data {0x10000000, 0x10000000}").fault,
    } == {first.fault}


def test_a_switch_that_halts_or_shuts_itself_down_is_fatal_without_saying_so() -> None:
    assert switch(26006, "SOE HALTED").fault == "nvswitch_fatal"
    assert switch(10006, "TSENSE OVERT Threshold reached. Shutting Down").fault == "nvswitch_fatal"


def test_what_switches_print_at_every_boot_is_only_kept() -> None:
    assert switch(22013, "Non-fatal, Link 44 Minion Link DLREQ interrupt").severity is Severity.INFO
