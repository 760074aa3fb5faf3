#!/bin/bash
# build.sh [--revision N] [--out DIR] [PACKAGE...] makes a .deb and a .rpm of each package (all three, unless named), a wheel and
# an sdist in dist/ or DIR, from .venv as `make setup` left it: nothing is downloaded. FORMATS="deb rpm" chooses.
# They are for the distribution's Python of the version that .venv has (PYTHON=python3.12 make setup, for another).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
revision=1 out=dist formats=${FORMATS:-deb rpm}
while [ $# -gt 0 ]; do
    case $1 in
    --revision) revision=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || set -- nodetriage nodetriage-controller nodetriage-analysis
say() { echo "build: $*" >&2; }

python=.venv/bin/python
interpreter=$($python -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
# What was compiled for one CPython 3.N runs in every other of that ABI, so it need not be the distribution's that builds.
abi=$($python -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))')
case $abi in
"cpython-3${interpreter#python3.}"-*) ;;
*) say "$(readlink -f $python) has the ABI $abi, unlike any distribution's; remove .venv, then PYTHON=... make setup" && exit 1 ;;
esac
# All times in the packages; the same source makes the same files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pyproject.toml)}
export SOURCE_DATE_EPOCH
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

.venv/bin/hatchling build -t wheel -t sdist -d "$work/python" >/dev/null
wheel=$(echo "$work"/python/*.whl)
cp "$work"/python/* "$out/"
version=$(basename "$wheel" | cut -d- -f2 | sed -E 's/\.?(dev|a|b|rc)/~\1/') # a version before the release sorts before it

describe() {
    command='' unit='' state='' conf_d=''
    case $1 in
    nodetriage)
        command=nodetriage glibc=2.17 unit=nodetriage-agent.service state="/var/lib/nodetriage /run/nodetriage"
        conf_d=/etc/nodetriage/conf.d
        deb_needs="libudev1, init-system-helpers (>= 1.52)" rpm_needs=systemd
        deb_field="Suggests: smartmontools, nvme-cli, ipmitool, munge"
        summary="finds hardware and system faults on GPU nodes (agent)"
        about="It checks GPUs, fabric, memory, disks and mounts, and reports to a controller."
        ;;
    nodetriage-controller)
        command=nodetriagectl glibc=2.34 unit=nodetriage-controller.service state=/var/lib/nodetriage-controller
        conf_d=/etc/nodetriage/controller.d
        deb_needs="init-system-helpers (>= 1.52)" rpm_needs=systemd
        deb_field="Suggests: slurm-client, munge, postgresql, nodetriage-analysis"
        summary="decides what a fault of a GPU node costs, and acts through Slurm (controller)"
        about="It stores what the agents find, drains nodes, requeues their jobs, and shows the fleet and its incidents."
        ;;
    nodetriage-analysis)
        glibc=2.34
        deb_needs="nodetriage-controller (= $version-$revision)" rpm_needs="nodetriage-controller = $version-$revision"
        deb_field="Enhances: nodetriage-controller"
        summary="reports, models and simulations of GPU nodes' faults and jobs"
        about="It adds the verbs report, model and simulate to nodetriagectl."
        ;;
    *) say "no package $1" && exit 1 ;;
    esac
}

# lay PACKAGE ROOT: all files as they will be on a machine.
lay() {
    umask 022
    $python packaging/environment.py "$1" "$wheel" "$2"
    mkdir -p "$2/usr/share/doc/$1"
    install -m 644 LICENSE "$2/usr/share/doc/$1/copyright"
    gzip -9n <CHANGELOG.md >"$2/usr/share/doc/$1/changelog.gz"
    [ -n "$command" ] || return 0
    $python packaging/command_pages.py "$command" "$2"
    mkdir -p "$2/usr/bin" "$2$conf_d"
    ln -s "/opt/$1/bin/$command" "$2/usr/bin/$command"
    install -D -m 644 "systemd/$unit" "$2/usr/lib/systemd/system/$unit"
    cp -r docs/*.md docs/decisions "$2/usr/share/doc/$1/"
    if [ "$1" = nodetriage ]; then
        install -m 644 packaging/etc/agent.toml "$2/etc/nodetriage/"
        install -D -m 644 systemd/nodetriage-agent.tmpfiles "$2/usr/lib/tmpfiles.d/$1.conf"
        mkdir -p "$2/usr/libexec/nodetriage" "$2/usr/share/nodetriage"
        # Static: it starts in half the time, and runs with any glibc.
        cc -O2 -static -Wall -Wextra -o "$2/usr/libexec/nodetriage/nodetriage-hook" packaging/slurm/nodetriage-hook.c
        cp -r packaging/slurm "$2/usr/share/nodetriage/slurm"
        rm "$2/usr/share/nodetriage/slurm/nodetriage-hook.c"
        chmod 755 "$2"/usr/share/nodetriage/slurm/*.d/* "$2/usr/share/nodetriage/slurm/healthcheck"
    else
        install -m 640 packaging/etc/controller.toml "$2/etc/nodetriage/" # a site may write a password into it
        install -m 644 packaging/etc/policy.toml "$2/etc/nodetriage/"
        install -D -m 644 packaging/prometheus-rules.yml "$2/usr/share/$1/prometheus-rules.yml"
    fi
}

fill() { # TEMPLATE PACKAGE ROOT
    sed -e "s|@PACKAGE@|$2|g; s|@VERSION@|$version|g; s|@REVISION@|$revision|g; s|@PYTHON@|$interpreter|g" \
        -e "s|@UNIT@|$unit|g; s|@STATE@|$state|g; s|@CONF_D@|$conf_d|g; s|@SUMMARY@|$summary|g; s|@ABOUT@|$about|g" \
        -e "s|@GLIBC@|$glibc|g; s|@DEB_NEEDS@|$deb_needs|g; s|@DEB_FIELD@|$deb_field|g; s|@RPM_NEEDS@|$rpm_needs|g" \
        -e "s|@ROOT@|$3|g; s|@FILES@|$work/$2.files|g" \
        -e "s|@SIZE_KIB@|$(du -sk "$3" | cut -f1)|g; s|@ARCHITECTURE@|$(dpkg --print-architecture 2>/dev/null)|g" "$1"
}

make_deb() {
    control=$work/$1.deb && mkdir "$control"
    fill packaging/deb/control.in "$1" "$2" >"$control/control"
    if [ -n "$unit" ]; then
        for script in postinst prerm postrm; do fill "packaging/deb/$script.in" "$1" "$2" >"$control/$script"; done
        chmod 755 "$control"/p*
        (cd "$2" && find etc -type f -printf '/%p\n') >"$control/conffiles"
    fi
    mv "$control" "$2/DEBIAN"
    # zstd: xz takes minutes for the controller. dpkg of Debian 12 and Ubuntu 22.04 reads it.
    dpkg-deb --root-owner-group -Zzstd -z${ZSTD_LEVEL:-9} --build "$2" \
        "$out/$1_$version-${revision}_$(dpkg --print-architecture).deb" >/dev/null
    rm -r "$2/DEBIAN"
}

make_rpm() {
    (
        cd "$2"
        echo "%doc /usr/share/doc/$1"
        if [ -z "$unit" ]; then # its files lie beside those of the package that it adds to
            find opt ! -type d -printf '/%p\n'
            exit
        fi
        find etc -type f -printf '%%config(noreplace) /%p\n'
        find etc/nodetriage -type d -printf '%%dir /%p\n'
        echo "/opt/$1"
        find usr ! -type d ! -path 'usr/share/doc/*' -printf '/%p\n' | sed 's|\(/usr/share/man/.*\)|%doc \1|'
        [ "$1" != nodetriage ] || echo "%dir /usr/libexec/nodetriage"
        echo "%dir /usr/share/$1"
    ) >"$work/$1.files"
    fill packaging/rpm/package.spec.in "$1" "$2" >"$work/$1.spec"
    [ -z "$unit" ] || fill packaging/rpm/unit.spec.in "$1" "$2" >>"$work/$1.spec"
    rpmbuild --quiet -bb --define "_topdir $work/rpm" --define "_rpmdir $out" --define "use_source_date_epoch_as_buildtime 1" \
        --define "_buildhost localhost" --define "_rpmfilename %{name}-%{version}-%{release}.%{arch}.rpm" "$work/$1.spec"
}

for package; do
    describe "$package"
    root=$work/$package
    lay "$package" "$root"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    for format in $formats; do "make_$format" "$package" "$root"; done
    say "$package $version-$revision for $interpreter: $(du -sh "$root" | cut -f1) installed"
done
ls -l "$out" >&2
