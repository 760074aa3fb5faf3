"""The verb `pki`: certificates for nodes, controllers and operators."""

import argparse
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetriage.controller.cli.options import add_json, print_result

if TYPE_CHECKING:
    from nodetriage.controller.auth.pki import Found, Pki
    from nodetriage.controller.auth.pki_settings import PkiSettings

_ROLES = ("node", "controller", "operator", "reader")
ENDS_SOON, ENDED = 1, 2


def add(verbs: Any) -> None:
    text = "make, renew and show the certificates of nodes, controllers and operators"
    verb = verbs.add_parser("pki", help=text, description=text)
    _common(verb)
    actions = verb.add_subparsers(required=True, metavar="ACTION", dest="action")
    text = "make a certificate authority"
    init = actions.add_parser("init", help=text, description=text)
    init.set_defaults(act=_init)
    text = "make keys and certificates"
    issue = actions.add_parser("issue", help=text, description=text)
    issue.add_argument("role", choices=_ROLES)
    issue.add_argument("names", nargs="+", metavar="NAME", help="a name, or a node set as gpu[001-128]")
    issue.add_argument(
        "--address", action="append", default=[], help="an address by which agents call the controller; may be repeated"
    )
    issue.set_defaults(act=_issue)
    for action in (init, issue):
        action.add_argument("--days", type=_days, metavar="N", help="lifetime in days, instead of the setting")
        action.add_argument("--force", action="store_true", help="replace existing files")
    text = "replace keys and certificates, for the same holders and in the same files"
    renew = actions.add_parser("renew", help=text, description=text)
    renew.add_argument("names", nargs="*", metavar="NAME", help="only these; node sets as gpu[001-128]")
    renew.add_argument("--within", type=_days, default=30, metavar="N", help="those that end within N days (30)")
    renew.set_defaults(act=_renew)
    text = "list the certificates; exit status 1 if one ends soon, 2 if one has ended, 3 if there are none"
    show = actions.add_parser("show", help=text, description=text)
    show.add_argument("files", nargs="*", type=Path, metavar="FILE", help="these files instead of the folder")
    show.add_argument("--within", type=_days, default=14, metavar="N", help="how many days are soon (14)")
    show.set_defaults(act=_show)
    for action in (init, issue, renew, show):
        add_json(action)
    verb.set_defaults(verb=_run)


def _common(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--config", type=Path, metavar="FILE", help="the controller's settings, for [pki]")
    verb.add_argument("--dir", type=Path, metavar="DIR", help="folder of the authority, instead of the setting")


def _days(text: str) -> float:
    """A number of days, for argparse."""
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 < days <= 36500:
        raise argparse.ArgumentTypeError(f"expected a number of days, got {text!r}")
    return days


def _run(arguments: argparse.Namespace) -> int:
    from nodetriage.controller import config
    from nodetriage.controller.auth.pki import Pki

    named = arguments.config or (config.DEFAULT_CONFIG if config.DEFAULT_CONFIG.exists() else None)
    settings = (config.load(named) if named else config.ControllerSettings()).pki
    code: int = arguments.act(arguments, settings, Pki(arguments.dir or settings.directory))
    return code


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def _names(given: list[str]) -> list[str]:
    """The names of node sets, each once. Raises ConfigError."""
    from nodetriage.checks.model.settings import ConfigError
    from nodetriage.controller.slurm.node_list import expand

    text = ",".join(given)
    if (names := expand(text)) is None:
        raise ConfigError(f"node set {text!r}: expected a name, or names as gpu[001-128]")
    return list(names)


def _init(arguments: argparse.Namespace, settings: "PkiSettings", pki: "Pki") -> int:
    file = pki.init(arguments.days or settings.ca_days, _now(), arguments.force)
    key = file.with_suffix(".key")
    lines = (f"{file}: give this to every node and controller", f"{key}: keep this where certificates are made only")
    print_result(arguments, {"certificate": str(file), "key": str(key)}, *lines)
    return 0


def _issue(arguments: argparse.Namespace, settings: "PkiSettings", pki: "Pki") -> int:
    from nodetriage.checks.model.settings import ConfigError
    from nodetriage.controller.auth.certificate import Role

    role = Role(arguments.role)
    names = _names(arguments.names)
    if arguments.address and (role is not Role.CONTROLLER or len(names) != 1):
        raise ConfigError("--address: expected the role controller and one name")
    days = arguments.days or settings.days(role)
    files = [str(pki.issue(role, name, arguments.address, days, _now(), arguments.force)) for name in names]
    print_result(arguments, {"files": files}, *files)
    return 0


def _renew(arguments: argparse.Namespace, _: "PkiSettings", pki: "Pki") -> int:
    from nodetriage.controller.auth.certificate import Role

    now, names = _now(), set(_names(arguments.names))
    before = now + datetime.timedelta(days=arguments.within)
    files: list[str] = []
    for found in pki.issued():
        if found.holder.role is Role.AUTHORITY or (names and found.file.stem not in names):
            continue
        if names or found.holder.ends < before:
            files.append(str(pki.renew(found, now)))
    print_result(arguments, {"files": files}, *files)
    return 0


def _show(arguments: argparse.Namespace, _: "PkiSettings", pki: "Pki") -> int:
    from nodetriage.controller.auth.pki import look
    from nodetriage.controller.cli import render
    from nodetriage.controller.store.database import NoDatabase

    found = [look(file) for file in arguments.files] or pki.issued()
    if not found:
        raise NoDatabase(f"{pki.folder}: no certificates: expected ca.crt here; `nodetriagectl pki init` makes one")
    now = _now()
    print_result(arguments, [_json(one, now) for one in found], render.certificate_table(found, now))
    ends = min(one.holder.ends for one in found)
    if ends > now + datetime.timedelta(days=arguments.within):
        return 0
    return ENDED if ends <= now else ENDS_SOON


def _json(found: "Found", now: datetime.datetime) -> dict[str, Any]:
    holder = found.holder
    return {
        "role": holder.role.value,
        "name": holder.name,
        "names": list(holder.names),
        "serial": holder.serial,
        "ends": holder.ends.isoformat(),
        "ends_in_days": round((holder.ends - now) / datetime.timedelta(days=1), 1),
        "file": str(found.file),
    }
