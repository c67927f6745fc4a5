"""How tests read what the doctor finds."""

from trimtab_controller.cli.doctor.findings import Finding, Level


def levels(findings: list[Finding]) -> list[Level]:
    assert all(finding.remedy for finding in findings if finding.level in (Level.WARNING, Level.FAULT))
    return [finding.level for finding in findings]
