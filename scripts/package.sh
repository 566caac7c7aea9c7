#!/usr/bin/env bash
# Packs what `make build` built: a .deb, an .rpm and a .tar.gz with install.sh, for one
# architecture, each with the engine and all that an installation needs.
#   scripts/package.sh ARCH BIN OUT    ARCH as Go names it; BIN has the programs
# VERSION is the version of the programs, as they were built with it, LIBEXEC names those that
# no user calls, and SOURCE_DATE_EPOCH is the time of all files. The same programs and time give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export TZ=UTC LC_ALL=C

arch=$1 bin=$2 out=$3
: "${VERSION:?}" "${LIBEXEC:?}" "${SOURCE_DATE_EPOCH:?}"
export SOURCE_DATE_EPOCH
stage=$out/work/$arch
root=$stage/root
read -ra programs <<< "$LIBEXEC"

# package_version is VERSION in the order that dpkg and rpm have: a version to come is before
# it, commits after a version are behind it.
package_version() { sed -E -e 's/-([0-9]+)-g/+\1.g/' -e 's/-/~/g' <<< "$VERSION"; }

lay_out_programs() {
  install -d "$root"/usr/{bin,libexec/caisson}
  install -m 0755 "$bin"/{caisson,caissond} "$root/usr/bin/"
  install -m 0755 "${programs[@]/#/$bin/}" "$root/usr/libexec/caisson/"
}

lay_out_settings() {
  install -D -m 0644 -t "$root/usr/lib/systemd/system" deploy/systemd/*.service
  install -D -m 0644 deploy/package/sysusers.conf "$root/usr/lib/sysusers.d/caisson.conf"
  install -D -m 0644 deploy/package/tmpfiles.conf "$root/usr/lib/tmpfiles.d/caisson.conf"
  install -D -m 0644 deploy/package/config.yaml "$root/etc/caisson/config.yaml"
}

# Manual pages and completions are those of the commands, which are the same for all
# architectures: programs of this host write them.
lay_out_help() {
  local man=$root/usr/share/man shell
  install -d "$man"/man{1,8} "$root"/usr/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
  "$out/work/man1" "$man/man1"
  "$out/work/man8" "$man/man8"
  gzip -9n "$man"/man?/*
  for shell in bash zsh fish; do
    "$out/work/caisson" completion $shell > "$stage/completion.$shell"
  done
  install -m 0644 "$stage/completion.bash" "$root/usr/share/bash-completion/completions/caisson"
  install -m 0644 "$stage/completion.zsh" "$root/usr/share/zsh/site-functions/_caisson"
  install -m 0644 "$stage/completion.fish" "$root/usr/share/fish/vendor_completions.d/caisson.fish"
}

lay_out_docs() {
  local doc=$root/usr/share/doc/caisson busybox libc seccomp
  install -d "$doc"
  find README.md docs -name '*.md' -exec install -D -m 0644 {} "$doc/{}" ';'
  gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
  install -m 0644 deploy/package/copyright "$doc/copyright"
  busybox=$(strings -n 8 "$root/usr/bin/caissond" | sed -nE 's/^BusyBox v.*Debian ([^)]*)\).*/\1/p' | head -n 1)
  if [ "$arch" = "$(go env GOHOSTARCH)" ]; then
    libc=$(dpkg-query -W -f '${source:Version}' libc6-dev)
    seccomp=$(dpkg-query -W -f '${source:Version}' libseccomp-dev)
  else
    libc=$(dpkg-query -W -f '${source:Version}' "libc6-dev-$arch-cross")
    seccomp=$(cat "build/$arch/libseccomp.version")
  fi
  build/sbom/sbom -version "$VERSION" -cache "$(go env GOMODCACHE)" -sbom "$doc/sbom.cdx.json" -licences "$stage/licences.txt" \
    -c "glibc=$libc=LGPL-2.1-or-later" -c "libseccomp=$seccomp=LGPL-2.1-only" -c "busybox=${busybox:?the daemon names no busybox}=GPL-2.0-only" \
    "$root"/usr/bin/* "$root"/usr/libexec/caisson/*
  gzip -9nc "$stage/licences.txt" > "$doc/licences.gz"
}

# fill puts values in the place of names into a file of deploy/package.
fill() { # FILE
  sed -e "s|@ARCH@|$arch|g" -e "s|@VERSION@|$VERSION|g" -e "s|@PACKAGE_VERSION@|$(package_version)|g" -e "s|@ROOT@|$root|g" \
    -e "s|@SCRIPTS@|$stage/scripts|g" -e "s|@MTIME@|$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)|g" \
    -e "s|@RECORDS@|$records|g" "deploy/package/$1"
}

fill_scripts() {
  local script
  records=$(sed -nE 's/^const (child)?[rR]ecordVersion = ([0-9]+)$/\2/p' runtime/record.go | sort -n | tail -n 1)
  [ -n "$records" ] || { echo "package: runtime/record.go names no version of a record" >&2; exit 1; }
  mkdir -p "$stage/scripts"
  for script in preinstall postinstall preremove postremove; do
    fill $script.sh > "$stage/scripts/$script.sh"
    chmod 0755 "$stage/scripts/$script.sh"
  done
  fill nfpm.yaml > "$stage/nfpm.yaml"
}

# pack_tar makes what hosts without dpkg and rpm install.
pack_tar() {
  local name=caisson-$VERSION-linux-$arch
  mkdir -p "$stage/$name"
  cp -r "$root" "$stage/$name/root"
  cp -r "$stage/scripts" "$stage/$name/scripts"
  install -m 0755 deploy/package/install.sh "$stage/$name/install.sh"
  tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -C "$stage" "$name" |
    gzip -n6 > "$out/$name.tar.gz"
}

rm -rf "$stage"
mkdir -p "$stage"
lay_out_programs
lay_out_settings
lay_out_help
lay_out_docs
fill_scripts
for packager in deb rpm; do
  build/nfpm/nfpm package --config "$stage/nfpm.yaml" --packager $packager --target "$out" > "$stage/$packager.log" || { cat "$stage/$packager.log" >&2; exit 1; }
done
pack_tar
rm -rf "$stage"
