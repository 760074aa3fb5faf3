"""Compiles the stand-in for NVIDIA's library, and starts a program that asks it through the real binding."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("fake_nvml.c")
ASKER = Path(__file__).with_name("ask_nvml.py")


def build(folder: Path, missing: tuple[str, ...] = ()) -> Path:
    """FOLDER/libnvidia-ml.so.1, without the functions that the driver of the test lacks. Needs a C compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    if missing:
        exports = folder / "exports.map"
        exports.write_text(f"{{ local: {'; '.join(missing)}; }};")
        command.append(f"-Wl,--version-script={exports}")
    subprocess.run([*command, "-o", folder / "libnvidia-ml.so.1", SOURCE], check=True)
    return folder


class FakeGpus:
    """The state that the stand-in library reads: a file a value (see the head of fake_nvml.c)."""

    def __init__(self, library: Path, state: Path, gpus: int) -> None:
        self.library, self.state = library, state
        for i in range(gpus):
            (state / f"gpu{i}").mkdir(parents=True)

    def set(self, name: str, value: str) -> None:
        """`name` is "gpu3/RemappedRows", or "Temperature" for all of them."""
        path = self.state / name
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name(f".{path.name}")
        partial.write_text(value)
        partial.rename(path)

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self.library), "FAKE_NVML_DIR": str(self.state)}


class Asker:
    """A process with the real nvidia-ml-py on the stand-in library. Ends with its `close`."""

    def __init__(self, gpus: FakeGpus, bus: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, ASKER, *bus],
            env=gpus.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, quarantined: tuple[str, ...] = ()) -> dict[str, Any]:
        """`gpus`, `unavailable` or `error`, and `calls`: what was announced, in order."""
        self.send(quarantined)
        answer: dict[str, Any] = json.loads(self.line())
        return answer

    def send(self, quarantined: tuple[str, ...] = ()) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(quarantined) + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(5)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
