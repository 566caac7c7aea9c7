#!/bin/sh
# Before the files are removed. Debian calls it with "remove", "upgrade NEW" or "deconfigure",
# rpm with 0 (removed) or 1 (upgraded). No sandbox may outlive the programs that end it.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
[ ! -d /run/systemd/system ] || systemctl stop caissond.service
# The administrator's CAISSON_* variables are not for this.
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/bin/caissond --stop-all >/run/caisson-stop.log 2>&1 || {
	cat /run/caisson-stop.log >&2
	rm -f /run/caisson-stop.log
	echo "caisson: sandboxes could not be ended, so nothing was removed" >&2
	exit 1
}
rm -f /run/caisson-stop.log
if [ -d /run/systemd/system ]; then
	systemctl stop caisson-sandboxes.service
fi
if command -v deb-systemd-helper >/dev/null; then
	: # the links stay until purge, or the package comes back
elif command -v systemctl >/dev/null; then
	systemctl disable caissond.service
fi
# The programs of each version: links of ours, which no package owns.
for dir in /usr/libexec/caisson/*; do
	[ ! -d "$dir" ] || [ -L "$dir" ] || rm -r --one-file-system -- "$dir"
done
