"""Lays out what one package has under ROOT/opt: what it imports, its command, and bytecode.

    python environment.py PACKAGE WHEEL ROOT

The libraries are those that requirements.lock names, taken from the environment that runs this (scripts/setup.sh made
it from the lock, hashes checked), so nothing is fetched here, at installation, or ever after on a node.
"""

import compileall
import os
import py_compile
import shutil
import sys
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement


class Package(NamedTuple):
    """`needs` is the requirement whose libraries it brings, `roots` are the parts of the project that it brings.

    A package without a command adds to the environment of the package `onto`, and brings only what that one lacks.
    """

    needs: str
    roots: tuple[str, ...]
    command: str = ""
    onto: str = ""


PACKAGES: Mapping[str, Package] = {
    "nodetriage": Package("nodetriage", ("agent", "checks", "service", "v1"), "nodetriage"),
    "nodetriage-controller": Package(
        "nodetriage[controller]", ("controller", "checks", "service", "v1"), "nodetriagectl"
    ),
    "nodetriage-analysis": Package("nodetriage[analysis]", ("analysis",), onto="nodetriage-controller"),
}
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def closure(needs: str) -> set[str]:
    """Names of all distributions that a requirement pulls in, as they are installed here; not its own."""
    extras: dict[str, frozenset[str]] = {}
    waiting = [Requirement(needs)]
    while waiting:
        wanted = waiting.pop()
        name, asked = wanted.name.lower().replace("_", "-"), frozenset(wanted.extras)
        if name in extras and asked <= extras[name]:
            continue
        extras[name] = extras.get(name, frozenset()) | asked
        for line in metadata.requires(name) or ():
            further = Requirement(line)
            if further.marker is None or any(further.marker.evaluate({"extra": e}) for e in asked or {""}):
                waiting.append(further)
    return extras.keys() - {Requirement(needs).name}


def copy_libraries(names: Iterable[str], site: Path) -> None:
    """What each distribution recorded as its own, but for commands, stale bytecode, and its tests."""
    for name in sorted(names):
        for file in metadata.files(name) or ():
            if ".." in file.parts or "__pycache__" in file.parts or "tests" in file.parts[:-1]:
                continue
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


def unpack(wheel: Path, package: Package, site: Path) -> None:
    """The package's parts of the project; the project's metadata lies with the command."""
    wanted = tuple(f"nodetriage/{root}/" for root in package.roots)
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(wanted) or (package.command and ".dist-info/" in n)]
        archive.extractall(site, names)


def add_programs(home: Path, installed_at: str, command: str) -> None:
    """What makes the folder a virtual environment (PEP 405) of the distribution's Python, and the command in it."""
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(f"/usr/bin/{PYTHON}")
    version = PYTHON.removeprefix("python")
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n")
    (entry,) = metadata.entry_points(group="console_scripts", name=command)
    script = home / "bin" / command
    # -I: neither PYTHONPATH nor the folder of whoever calls it decides what root imports.
    script.write_text(
        f"#!{installed_at}/bin/python -I\nimport sys\n\nfrom {entry.module} import {entry.attr}\n\n"
        f"sys.exit({entry.attr}())\n"
    )
    script.chmod(0o755)


def compile_all(site: Path, root: Path, made_at_s: int) -> None:
    """Bytecode that is good as long as the files keep their times, which packages see to."""
    for path in site.rglob("*"):
        os.utime(path, (made_at_s, made_at_s))
    mode = py_compile.PycInvalidationMode.TIMESTAMP
    # Some libraries carry files for other versions of Python, or templates; what does not compile is not imported.
    compileall.compile_dir(site, quiet=2, stripdir=str(root), prependdir="/", workers=0, invalidation_mode=mode)


def main(name: str, wheel: str, root: str) -> None:
    package = PACKAGES[name]
    installed_at = f"/opt/{package.onto or name}"
    home = Path(root) / installed_at.lstrip("/")
    site = home / "lib" / PYTHON / "site-packages"
    site.mkdir(parents=True)
    already = closure(PACKAGES[package.onto].needs) if package.onto else set()
    copy_libraries(closure(package.needs) - already, site)
    unpack(Path(wheel), package, site)
    if package.command:
        add_programs(home, installed_at, package.command)
    compile_all(site, Path(root), int(os.environ["SOURCE_DATE_EPOCH"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
