"""A controller without a lease starts no command that changes anything, and goes on reading."""

import stat
from pathlib import Path

import pytest

from nodetriage.controller.scheduler import SchedulerUnavailable
from nodetriage.controller.slurm.client import Slurm


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Slurm's commands, which write down how they were called."""
    for name in ("scontrol", "scancel", "sinfo", "squeue"):
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/called\n')
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return tmp_path


@pytest.mark.parametrize("may_act", [True, False])
async def test_commands_that_change_something_need_the_lease(commands: Path, may_act: bool) -> None:
    slurm = Slurm(environment={"PATH": f"{commands}:/usr/bin:/bin"})
    slurm.may_act = lambda: may_act
    changes = (
        lambda: slurm.drain(["n1"], "why"),
        lambda: slurm.undrain("n1"),
        lambda: slurm.requeue("11", hold=False),
        lambda: slurm.release("11"),
        lambda: slurm.cancel("11"),
        lambda: slurm.notify_job("11", "text"),
    )
    for change in changes:
        if may_act:
            await change()
        else:
            with pytest.raises(SchedulerUnavailable, match="lease"):
                await change()
    called = (commands / "called").read_text().splitlines() if may_act else []
    assert len(called) == (len(changes) if may_act else 0)
    assert await slurm.nodes() == {}
    assert await slurm.job("11") is None
    assert await slurm.reservations() == ()
