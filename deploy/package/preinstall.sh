#!/bin/sh
# Before the files are in place. Debian calls it with "install" or "upgrade", rpm with a number.
set -e

records=@RECORDS@ # the newest form of a sandbox's record that this version reads

# A daemon removes the sandboxes whose records it cannot read. To be asked first is better.
for record in /run/caisson/sandboxes/*/record.json; do
	[ -f "$record" ] || continue
	form=$(sed -n '1,/"version"/s/.*"version": *\([0-9][0-9]*\).*/\1/p' "$record" | head -n 1)
	[ "${form:-0}" -le "$records" ] || {
		id=${record%/*}
		echo "caisson: sandbox ${id##*/} was made by a newer version (record $form, this version reads $records): end such sandboxes first (caisson rm --all --force), then install this version" >&2
		exit 1
	}
done
