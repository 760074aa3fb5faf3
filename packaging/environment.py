"""Lays out the environment of one package under ROOT/opt/PACKAGE: what it imports, its command, and bytecode.

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
    """`without` are parts of the project that this package does not use, and whose libraries it lacks."""

    needs: str
    command: str
    without: tuple[str, ...]


PACKAGES: Mapping[str, Package] = {
    "nodetriage": Package("nodetriage", "nodetriage", ("nodetriage/controller/", "nodetriage/analysis/")),
    "nodetriage-controller": Package("nodetriage[controller]", "nodetriagectl", ("nodetriage/agent/",)),
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


def unpack(wheel: Path, without: tuple[str, ...], site: Path) -> None:
    """The project itself."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site, [n for n in archive.namelist() if not n.startswith(without)])


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
    package, installed_at = PACKAGES[name], f"/opt/{name}"
    home = Path(root) / installed_at.lstrip("/")
    site = home / "lib" / PYTHON / "site-packages"
    site.mkdir(parents=True)
    copy_libraries(closure(package.needs), site)
    unpack(Path(wheel), package.without, site)
    add_programs(home, installed_at, package.command)
    compile_all(site, Path(root), int(os.environ["SOURCE_DATE_EPOCH"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
