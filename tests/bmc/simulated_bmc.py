"""A BMC that answers ipmitool over the network: Debian's ipmi_sim on loopback."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).parent

_RECORD = """sdr type {record}
	sensor_owner_id 0x20
	sensor_owner_lun 0
	channel_number 0
	sensor_number {number}
	entity_id {entity}
	entity_instance {instance}
	sensor_type {type}
	init_scanning true
	init_sensor_type true
	default_sensor_scan_on true
	event_reading_type_code {code}
{more}	id_string "{name}"
endsdr
"""
_CONTROLLER = """sdr type 18
	device_slave_address 0x20
	device_channel_number 0
	chassis true
	fru_inventory true
	sel true
	sdr true
	sensor true
	entity_id system_board
	entity_instance 1
	id_string "Bmc"
endsdr
"""


def _analog(number: int, name: str, kind: str, unit: str, entity: str, m: int, thresholds: str) -> str:
    more = (
        f"\tsensor_threshold_access settable\n\tanalog_data_format unsigned\n\tbase_unit {unit}\n"
        f"\tlinearization linear\n\tm {m}\n\taccuracy 1\n\tsensor_direction input\n\tsensor_maximum 255\n"
        "\tsensor_minimum 0\n"
    )
    for name_ in thresholds.split():
        more += f"\t{name_}_thrsh_readable true\n\t{name_}_thrsh_settable true\n"
    return _RECORD.format(record=1, number=number, entity=entity, instance=1, type=kind, code=1, name=name, more=more)


def _discrete(number: int, name: str, kind: str, code: str, entity: str, instance: int, bits: str) -> str:
    more = "".join(
        f"\tevent{b}_state_ret true\n\tassert_event{b} true\n\tdeassert_event{b} true\n" for b in bits.split()
    )
    return _RECORD.format(
        record=2, number=number, entity=entity, instance=instance, type=kind, code=code, name=name, more=more
    )


def _sensors() -> str:
    return (
        _CONTROLLER
        + _analog(1, "Inlet Temp", "Temperature", "degrees_C", "external_environment", 1, "unc uc unr")
        + _analog(3, "Fan1", "Fan", "RPM", "fan_cooling_device", 100, "lnc lc lnr")
        + _discrete(5, "Psu1 Status", "Power_Supply", "0x6f", "power_supply", 1, "0 1 2 3")
        + _discrete(6, "Psu2 Status", "Power_Supply", "0x6f", "power_supply", 2, "0 1 2 3")
        + _discrete(7, "Psu Redundancy", "Power_Unit", "0x0b", "power_unit", 1, "0 1 2")
        + _discrete(10, "Dimm Ecc", "Memory", "0x6f", "memory_device", 1, "0 1 5")
    )


def missing() -> str:
    """What this machine lacks to simulate a BMC; empty where it lacks nothing."""
    lacking = [name for name in ("ipmi_sim", "sdrcomp", "ipmitool") if shutil.which(name) is None]
    return f"{', '.join(lacking)} not installed" if lacking else ""


class SimulatedBmc:
    """`argv` is how ipmitool reaches it, `argv_in_haste` where nobody may answer.

    Ends with `stop`; a stopped (SIGSTOP) one is ended too.
    """

    def __init__(self, folder: Path) -> None:
        self._port = _free_port()
        (folder / "ipmi_sim/bmc").mkdir(parents=True)
        (folder / "lan.conf").write_text((HERE / "lan.conf.in").read_text().replace("@PORT@", str(self._port)))
        (folder / "sensors.sdrs").write_text(_sensors())
        compiled = folder / "ipmi_sim/bmc/sdr.20.main"
        subprocess.run(["sdrcomp", "-o", compiled, folder / "sensors.sdrs"], check=True, timeout=60)
        self._log = (folder / "log").open("wb")
        argv = ["ipmi_sim", "-n", "-c", folder / "lan.conf", "-f", HERE / "bmc.emu", "-s", folder]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        where = ["-H", "127.0.0.1", "-p", str(self._port), "-U", "admin", "-P", "admin", "-C", "3"]
        self.argv = ("ipmitool", "-I", "lanplus", "-N", "10", "-R", "3", *where)
        self.argv_in_haste = ("ipmitool", "-I", "lanplus", "-N", "1", "-R", "1", *where)
        # FreeIPMI asks this BMC for a session as it opens, without the privilege that its user lacks.
        login = ["-h", f"127.0.0.1:{self._port}", "-u", "admin", "-p", "admin", "-I", "3", "-l", "USER"]
        self.freeipmi = ("-D", "LAN_2_0", "-W", "opensesspriv", *login)
        self._until_ready()
        self.ipmitool("sel", "time", "set", "now")

    def ipmitool(self, *arguments: str) -> str:
        done = subprocess.run([*self.argv, *arguments], capture_output=True, text=True, check=True, timeout=90)
        return done.stdout

    def emulate(self, command: str) -> None:
        """One command of ipmi_sim_cmd(5), such as `sensor_set_bit 0x20 0 5 3 1 1`: supply 1 lost its input."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as console:
            answers = console.makefile("rwb", buffering=0)
            _until_prompt(answers)
            answers.write(command.encode() + b"\n")
            _until_prompt(answers)

    def fall_silent(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def speak_again(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)
        self._log.close()

    def _until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while subprocess.run([*self.argv_in_haste, "mc", "guid"], capture_output=True, timeout=60).returncode:
            assert time.monotonic() < deadline, "the simulated BMC did not answer within 60 s"


def _until_prompt(answers: object) -> None:
    while (byte := answers.read(1)) not in (b">", b""):  # type: ignore[attr-defined]
        del byte


def _free_port() -> int:
    """Free for TCP (its console) and, as good as surely, for UDP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
