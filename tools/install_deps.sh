#!/usr/bin/env bash
# Installs what a build and its tests need, as tools/dependencies.txt lists it: Debian 12 and Ubuntu 24.04, as root or
# with sudo. Does nothing, quickly, when all is there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() { echo "install_deps: $*" >&2; exit 1; }

[ -r /etc/os-release ] || fail "cannot tell the distribution: /etc/os-release is missing"
# shellcheck disable=SC1091
. /etc/os-release
distribution=$ID-${VERSION_ID:-unknown}

listed() { # the packages of one kind for this distribution
  awk -v kind="$1" -v distribution="$distribution" '$1 == kind && $2 == distribution { for (i = 3; i <= NF; i++) print $i }' \
    "$here/dependencies.txt"
}

mapfile -t wanted < <(listed apt)
[ ${#wanted[@]} -gt 0 ] ||
  fail "found $distribution, know debian-12 and ubuntu-24.04; install by hand what tools/dependencies.txt lists"

rust_is_enough() { "$here/find_cargo.sh" > /dev/null 2>&1; }
rust_is_enough || mapfile -t -O ${#wanted[@]} wanted < <(listed apt-rust)

missing=()
for package in "${wanted[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null || fail "missing packages: ${missing[*]}; run as root or install sudo"
    as_root=(sudo)
  fi
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" > /dev/null ||
    fail "apt-get could not install: ${missing[*]}"
fi
"$here/find_cargo.sh" > /dev/null
