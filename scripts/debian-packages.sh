#!/bin/bash
# debian-packages.sh [--required] FILE: sees to the Debian packages that FILE (- for standard input) names, one a line.
# As root installs the missing ones, without starting their services; otherwise names them, and goes on unless --required.
set -euo pipefail
required=
if [ "$1" = --required ]; then required=1 && shift; fi
say() { echo "packages: $*" >&2; }

missing=()
while read -r package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done < <(sed 's/#.*//' "$1" | grep -oE '[^[:space:]]+')
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "missing: ${missing[*]}"
    say "as root: apt-get install --no-install-recommends ${missing[*]}"
    [ -z "$required" ] || exit 1
    say "goes on; the tests that need them are skipped"
    exit 0
fi

# A daemon that a test starts by itself is not to run as a service of this machine too.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
fi
say "installs ${missing[*]}"
install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2; }
apt-get update -qq >&2 || say "the package lists could not be brought up to date"
install
