"""Compiles the program that Slurm's hooks run, as the package does, and writes hook scripts that use it."""

import subprocess
from pathlib import Path

SLURM = Path(__file__).resolve().parents[2] / "packaging/slurm"
SCRIPTS = {"prolog": "prolog.d/50-nodetriage", "epilog": "epilog.d/50-nodetriage", "health": "healthcheck"}


def build(folder: Path) -> Path:
    """FOLDER/nodetriage-hook. Needs a C compiler."""
    program = folder / "nodetriage-hook"
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, SLURM / "nodetriage-hook.c"]
    subprocess.run(command, check=True)
    return program


def script(hook: str, program: Path, run_dir: str, into: Path) -> Path:
    """The shipped script of a hook, with a test's program and run directory in it (`run_dir` may use $variables)."""
    text = (SLURM / SCRIPTS[hook]).read_text()
    assert "hook=/usr/libexec/nodetriage/nodetriage-hook\n" in text
    text = text.replace("/usr/libexec/nodetriage/nodetriage-hook", str(program))
    text = text.replace('exec "$hook"', f'exec "$hook" -d "{run_dir}"')
    into.write_text(text)
    into.chmod(0o755)
    return into
