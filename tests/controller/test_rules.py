"""Which faults may act."""

import pytest

from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import faults
from nodetriage.controller.settings.explain import explain
from nodetriage.controller.settings.rules import Mode, Policy, Shadow


@pytest.mark.parametrize("code", faults())
def test_a_fault_drains_a_node_only_where_its_entry_is_trusted(code: str) -> None:
    action = explain(Policy(mode=Mode.ENFORCE), code, Severity.CRITICAL, (), "").action

    assert action == ("drain_and_requeue" if faults()[code].trusted else "shadow")


def test_a_fault_that_the_vocabulary_lacks_is_in_shadow_until_the_site_lists_it() -> None:
    assert "does not know the fault" in Policy(mode=Mode.ENFORCE).untrusted("site", "site_license")
    assert not Policy(mode=Mode.ENFORCE, shadow=Shadow(trusted=("site_license",))).untrusted("site", "site_license")
