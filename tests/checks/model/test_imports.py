"""What it costs to import the model: a service that reads its settings must not load the checks."""

import subprocess
import sys

import pytest


def modules_of_ours_loaded_by(module: str) -> set[str]:
    program = f"import {module}, sys; print(*(m for m in sys.modules if m.startswith('nodetriage.')))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.split())


@pytest.mark.parametrize("module", ["nodetriage.checks.model", "nodetriage.checks.model.settings"])
def test_the_model_loads_nothing_of_ours_from_outside_its_package(module: str) -> None:
    loaded = modules_of_ours_loaded_by(module)

    assert module in loaded
    assert {name for name in loaded if not name.startswith("nodetriage.checks.model")} == {"nodetriage.checks"}


def test_the_controllers_settings_load_no_check() -> None:
    loaded = modules_of_ours_loaded_by("nodetriage.controller.config")

    assert "nodetriage.checks.model.settings" in loaded
    assert not {name for name in loaded if name.startswith("nodetriage.checks.")} - {
        f"nodetriage.checks.model{part}"
        for part in (
            "",
            ".check",
            ".confidence",
            ".faults",
            ".finding",
            ".host",
            ".kernel_line",
            ".kernel_rules",
            ".settings",
            ".severity",
        )
    }


def test_the_list_of_all_checks_does_load_them() -> None:
    assert "nodetriage.checks.gpu.gpu_xid" in modules_of_ours_loaded_by("nodetriage.checks.registry")
