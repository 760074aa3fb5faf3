"""kill -9 of agent and controller at random moments, under load: nothing is lost, nothing is done twice."""

import random
from pathlib import Path

import pytest
from crashes import Crashes
from slurm_cluster import SlurmCluster

CYCLES = 50  # bench/crash.py does a thousand


@pytest.mark.slurm
@pytest.mark.timeout(900)  # a minute, on a machine that does nothing else
def test_no_event_is_lost_and_no_effect_repeated_over_fifty_kills(cluster: SlurmCluster, folder: Path) -> None:
    seed = random.randrange(1 << 32)
    crashes = Crashes(cluster, folder, seed)
    try:
        outcome = crashes.run(CYCLES)
    finally:
        crashes.close()
    print(f"seed {seed}: {outcome}")

    assert outcome.faults == {}
    assert outcome.lines > CYCLES
    assert outcome.connected_kills >= CYCLES // 10
    assert outcome.effects == 10
