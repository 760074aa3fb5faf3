"""What is in the packages, without installing them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from package_build import ROOT, only

pytestmark = pytest.mark.timeout(1500)  # whoever comes first waits for the packages

UNIT = "/usr/lib/systemd/system/nodetriage-agent.service"
EXPECTED = (
    "/etc/nodetriage/agent.toml",
    "/opt/nodetriage/bin/nodetriage",
    "/opt/nodetriage/bin/python",
    "/usr/bin/nodetriage",
    "/usr/lib/tmpfiles.d/nodetriage.conf",
    "/usr/libexec/nodetriage/nodetriage-hook",
    "/usr/share/bash-completion/completions/nodetriage",
    "/usr/share/doc/nodetriage/operate.md",
    "/usr/share/man/man1/nodetriage.1.gz",
    "/usr/share/nodetriage/slurm/prolog.d/50-nodetriage",
    "/usr/share/zsh/vendor-completions/_nodetriage",
    UNIT,
)


def told(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=180).stdout


@pytest.fixture(scope="module")
def first(agent_packages: tuple[Path, Path]) -> Path:
    return agent_packages[0]


@pytest.fixture(scope="module")
def in_deb(first: Path) -> dict[str, str]:
    """Mode of each file and link by its path."""
    lines = [line.split(maxsplit=5) for line in told("dpkg-deb", "--contents", str(only(first, "*.deb"))).splitlines()]
    return {f[5].partition(" -> ")[0].removeprefix("."): f[0] for f in lines if not f[0].startswith("d")}


@pytest.fixture(scope="module")
def unpacked(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    told("dpkg-deb", "--extract", str(only(first, "*.deb")), str(folder))
    return folder


def test_both_formats_hold_what_a_node_needs_and_the_same_files(first: Path, in_deb: dict[str, str]) -> None:
    rpm = str(only(first, "*.rpm"))
    # An rpm lists folders of its own as well, with a mode that begins with d.
    modes = dict(reversed(line.split()) for line in told("rpm", "-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]", rpm).splitlines())  # fmt: skip  # noqa: E501
    in_rpm = {path for path, mode in modes.items() if not mode.startswith("d")}

    assert set(EXPECTED) <= in_rpm
    assert in_rpm == in_deb.keys()


def test_settings_are_kept_on_an_upgrade_in_both_formats(first: Path) -> None:
    conffiles = told("dpkg-deb", "--info", str(only(first, "*.deb")), "conffiles").split()

    assert conffiles == ["/etc/nodetriage/agent.toml"]
    assert told("rpm", "-qpc", str(only(first, "*.rpm"))).split() == conffiles


def test_both_ask_for_the_python_that_they_were_made_for(first: Path, in_deb: dict[str, str]) -> None:
    (version,) = {m[1] for path in in_deb if (m := re.match(r"/opt/nodetriage/lib/python(3\.\d+)/", path))}

    assert f"python{version}," in told("dpkg-deb", "--field", str(only(first, "*.deb")), "Depends")
    assert f"/usr/bin/python{version}" in told("rpm", "-qpR", str(only(first, "*.rpm"))).split()


def test_both_ask_for_the_c_library_that_their_programs_want(first: Path, unpacked: Path) -> None:
    wanted = [re.findall(r"\(GLIBC_2\.(\d+)", told("objdump", "-T", str(p))) for p in unpacked.rglob("*.so*")]
    newest = max(int(minor) for symbols in wanted for minor in symbols)

    depends = told("dpkg-deb", "--field", str(only(first, "*.deb")), "Depends")
    (asked,) = re.findall(r"libc6 \(>= 2\.(\d+)\)", depends)
    assert newest <= int(asked)
    assert "NEEDED" not in told("objdump", "-p", str(unpacked / "usr/libexec/nodetriage/nodetriage-hook"))
    assert f"glibc >= 2.{asked}" in told("rpm", "-qpR", str(only(first, "*.rpm")))


def test_nothing_can_be_written_by_anyone_but_root_and_nothing_is_setuid(in_deb: dict[str, str]) -> None:
    open_to_all = [p for p, mode in in_deb.items() if not mode.startswith("l") and ("w" in mode[4:] or "s" in mode)]

    assert not open_to_all


def test_no_file_knows_where_it_was_built(unpacked: Path) -> None:
    found = subprocess.run(["grep", "-rlaF", f"{ROOT}/", str(unpacked)], capture_output=True, text=True, timeout=180)

    assert found.stdout == ""


def test_a_node_gets_neither_the_controller_nor_its_libraries(in_deb: dict[str, str], first: Path) -> None:
    heavy = ("/nodetriage/controller/", "/nodetriage/analysis/", "/sqlalchemy/", "/scipy/", "/polars/")

    assert not [p for p in in_deb if any(h in p for h in heavy)]
    assert only(first, "*.deb").stat().st_size < 20 << 20


@pytest.fixture(scope="module")
def controller(controller_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The controller's package, unpacked."""
    folder = tmp_path_factory.mktemp("controller")
    told("dpkg-deb", "--extract", str(only(controller_package, "*.deb")), str(folder))
    return folder


@pytest.fixture(scope="module")
def analysis(analysis_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The analysis' package, unpacked."""
    folder = tmp_path_factory.mktemp("analysis")
    told("dpkg-deb", "--extract", str(only(analysis_package, "*.deb")), str(folder))
    return folder


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


def nodetriagectl(*packages: Path, words: str) -> "subprocess.CompletedProcess[str]":
    """The command with what these packages bring, and nothing else that is installed here."""
    sites = [str(next(p.glob("opt/*/lib/python*/site-packages"))) for p in packages]
    code = f"import sys; sys.path[:0] = {sites}; from nodetriage.controller.cli.main import main; sys.exit(main())"
    argv = [sys.executable, "-I", "-S", "-c", code, *words.split()]
    return subprocess.run(argv, capture_output=True, text=True, timeout=180)


def test_the_controller_brings_no_library_of_the_analysis(controller: Path) -> None:
    heavy = ("/nodetriage/analysis/", "/nodetriage/agent/", "/scipy/", "/polars/", "/matplotlib/", "/numpy/")

    assert not [p for p in files(controller) if any(h in p for h in heavy)]
    assert sum(p.stat().st_size for p in controller.rglob("*") if p.is_file()) < 150e6


def test_the_controller_alone_names_the_package_that_brings_a_report(controller: Path) -> None:
    help_text = nodetriagectl(controller, words="--help")
    asked = nodetriagectl(controller, words="report mttf --json --jobs j.txt")

    verbs = re.findall(r"^    (\w[\w-]*)  ", help_text.stdout, re.MULTILINE)
    assert "incidents" in verbs
    assert "report" not in verbs
    assert asked.returncode == 78
    assert "the package nodetriage-analysis brings it" in asked.stderr


def test_with_the_analysis_the_same_command_simulates_and_reports(
    controller: Path, analysis: Path, tmp_path: Path
) -> None:
    made = nodetriagectl(controller, analysis, words=f"simulate {tmp_path} --nodes 20 --days 10 --jobs 500")
    jobs, events = tmp_path / "jobs.parquet", tmp_path / "events.parquet"
    asked = nodetriagectl(controller, analysis, words=f"report mttf --jobs {jobs} --events {events}")

    assert made.returncode == 0, made.stderr
    assert asked.returncode == 0, asked.stderr
    assert "mttf" in asked.stdout.lower()


def test_the_analysis_adds_to_one_version_of_the_controller_and_shares_no_file_with_it(
    controller: Path, analysis: Path, analysis_package: Path
) -> None:
    version, depends = (
        told("dpkg-deb", "--field", str(only(analysis_package, "*.deb")), f).strip() for f in ("Version", "Depends")
    )

    assert f"nodetriage-controller (= {version})" in depends
    assert files(analysis) & files(controller) == set()


def test_the_same_source_makes_the_same_package(agent_packages: tuple[Path, Path]) -> None:
    data = [
        subprocess.run(["dpkg-deb", "--fsys-tarfile", str(only(f, "*.deb"))], check=True, capture_output=True).stdout
        for f in agent_packages
    ]

    assert data[0] == data[1]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("nodetriage", "ch"), {"check"}),
        (("nodetriage", "check", "--ro"), {"--root"}),
        (("nodetriage", "slurm", ""), {"doctor"}),
    ],
)
def test_bash_completes_verbs_and_options(unpacked: Path, typed: tuple[str, ...], offered: set[str]) -> None:
    script = unpacked / "usr/share/bash-completion/completions/nodetriage"
    words = " ".join(f"'{w}'" for w in typed)
    run = f'. {script}; COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _shtab_nodetriage; echo "${{COMPREPLY[@]}}"'

    assert set(told("bash", "-c", run).split()) == offered


def test_the_manual_page_has_every_verb(unpacked: Path) -> None:
    page = told("gzip", "-dc", str(unpacked / "usr/share/man/man1/nodetriage.1.gz")).replace("\\-", "-")
    verbs = re.findall(r"^### `(nodetriage [^`]+)`", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)

    assert len(verbs) > 5
    assert not [v for v in verbs if f".SS \\fB{v}\\fR" not in page]
    assert "nodetriage - Finds hardware" in page
    assert ".SH EXIT STATUS\n0 ok" in page


@pytest.mark.parametrize(("unit", "exposure"), [("agent", 4.3), ("controller", 2.1)])
def test_the_units_are_well_formed_and_as_closed_as_the_documentation_says(
    unit: str, exposure: float, tmp_path: Path
) -> None:
    file = ROOT / f"systemd/nodetriage-{unit}.service"
    copy = tmp_path / file.name  # with programs that are here, so that only the unit itself is judged
    copy.write_text(re.sub(r"^(Exec\w+)=.*", r"\1=/bin/true", file.read_text(), flags=re.MULTILINE))

    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=120
    )
    score = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={exposure * 10:.0f}", str(file)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert file.name not in verified.stderr, verified.stderr
    assert score.returncode == 0, score.stdout[-300:]


def test_an_rpm_upgrade_keeps_changed_settings_and_an_erase_takes_the_rest(
    agent_packages: tuple[Path, Path], tmp_path: Path
) -> None:
    # Into a folder, without the scripts, which want a system around them; they are systemctl's calls and no more.
    rpm = ("rpm", "--root", str(tmp_path), "--nodeps", "--noscripts")
    first, second = (str(only(folder, "*.rpm")) for folder in agent_packages)
    settings = tmp_path / "etc/nodetriage/agent.toml"
    told(*rpm, "--install", first)
    with settings.open("a") as file:
        file.write("# ours\n")

    told(*rpm, "--upgrade", second)

    assert settings.read_text().endswith("# ours\n")
    assert told("rpm", "--root", str(tmp_path), "-q", "nodetriage").split("-")[2].startswith("2.")

    told(*rpm, "--erase", "nodetriage")

    left = [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file() and ".rpmdb" not in p.parts]
    assert left == ["etc/nodetriage/agent.toml.rpmsave"]
