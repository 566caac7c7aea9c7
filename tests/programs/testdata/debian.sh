#!/bin/sh
# Makes a small Debian with apt, and a mirror with what it has not, out of packages that this
# host's apt downloads:
#   debian.sh DIR PACKAGE...    root.tar and mirror/ in DIR; DIR/debs keeps what was downloaded
set -eu
dir=$1; shift
base='apt base-files base-passwd bash coreutils dash debianutils diffutils dpkg findutils grep gzip hostname
  init-system-helpers libc-bin login mawk ncurses-base ncurses-bin passwd perl-base sed sysvinit-utils tar usr-is-merged util-linux'
debs=$dir/debs root=$dir/root info=$dir/root/var/lib/dpkg/info
rm -rf "$root" "$dir/mirror"
mkdir -p "$debs/partial" "$dir/empty/partial" "$dir/mirror" "$root"/etc "$info" "$root"/usr/bin "$root"/usr/sbin "$root"/usr/lib "$root"/usr/lib64
chmod 0755 "$dir"

# fetch downloads what a Debian with the database $1 lacks for the other packages, and prints
# the names of the files.
fetch() {
  status=$1; shift
  apt "$debs/" --download-only "$@" >&2
  apt "$dir/empty/" --print-uris "$@" | sed -n "s|^'[^ ]* \([^ ]*\) .*|\1|p"
}

apt() {
  archives=$1; shift
  apt-get -q -y --no-install-recommends -o Dir::State::status="$status" -o Dir::State::extended_states="$dir/auto" \
    -o Dir::Cache::archives="$archives" -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o Acquire::Retries=3 install "$@"
}

# unpack puts a package into the root, and into its database as installed.
unpack() {
  dpkg-deb --fsys-tarfile "$1" | tar -C "$root" --keep-directory-symlink -xf -
  name=$(dpkg-deb -f "$1" Package)
  echo Status: install ok installed >> "$root/var/lib/dpkg/status"
  dpkg-deb -f "$1" >> "$root/var/lib/dpkg/status"
  echo >> "$root/var/lib/dpkg/status"
  [ "$(dpkg-deb -f "$1" Multi-Arch)" != same ] || name=$name:$(dpkg-deb -f "$1" Architecture)
  dpkg-deb -e "$1" "$dir/control"
  for f in "$dir"/control/*; do
    [ "${f##*/}" = control ] || mv "$f" "$info/$name.${f##*/}"
  done
  rm -r "$dir/control"
  dpkg-deb --fsys-tarfile "$1" | tar -tf - | sed 's|^\.||; s|\(.\)/$|\1|; s|^/$|/.|' > "$info/$name.list"
}

: > "$dir/none"
ls /var/lib/apt/lists/*_Packages* > /dev/null 2>&1 || apt-get -q update >&2
fetch "$dir/none" $base > "$dir/base"
for d in bin sbin lib lib64; do ln -s usr/$d "$root/$d"; done
while read -r deb; do unpack "$debs/$deb"; done < "$dir/base"
rm -r "$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/locale
echo 1 > "$info/format"
cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
echo '_apt:x:42:65534::/nonexistent:/usr/sbin/nologin' >> "$root/etc/passwd"
cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
sed 's/:.*/:*:19000:0:99999:7:::/' "$root/etc/passwd" > "$root/etc/shadow"
sed 's/:.*/:*::/' "$root/etc/group" > "$root/etc/gshadow"
chgrp 42 "$root/etc/shadow" "$root/etc/gshadow"
chmod 0640 "$root/etc/shadow" "$root/etc/gshadow"
DEBIAN_FRONTEND=noninteractive chroot "$root" pam-auth-update --package --force
tar -C "$root" -cf "$dir/root.tar" .

fetch "$root/var/lib/dpkg/status" "$@" > "$dir/further"
while read -r deb; do ln "$debs/$deb" "$dir/mirror/"; done < "$dir/further"
(cd "$dir/mirror" && dpkg-scanpackages -m . > Packages 2>"$dir/scan.log") || { cat "$dir/scan.log" >&2; exit 1; }
rm -r "$root"
