# clone.sh SOURCE OBJECTS TO: make TO, which is empty, a clone of the repository in SOURCE, by
# reference to its OBJECTS. Nothing of SOURCE can be written.
set -eu
src=$1 objects=$2 to=$3
exec >&2
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_CONFIG
export GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 LC_ALL=C
command -v git >/dev/null || exit 90
host() { git --git-dir="$src/.git" --work-tree="$src" -c core.quotePath=false -c core.fsmonitor=false "$@"; }
own() { git -C "$to" -c core.hooksPath=/dev/null -c core.quotePath=false "$@"; }

if host config --local --get extensions.partialClone >/dev/null; then exit 91; fi
format=$(host config --local --get extensions.objectFormat || echo sha1)
case $format in
sha1) git -c init.defaultBranch=main init -q --template= "$to" ;;
*) git -c init.defaultBranch=main init -q --template= --object-format="$format" "$to" ;;
esac
mkdir -p "$to/.git/objects/info" "$to/.git/info"
echo "$objects" >"$to/.git/objects/info/alternates"
if [ -f "$src/.git/shallow" ]; then cp "$src/.git/shallow" "$to/.git/shallow"; fi

list=$to/.git/host-list found=$to/.git/host-found
host for-each-ref --format='%(refname) %(objectname) %(symref)' refs/heads refs/tags refs/remotes >"$list"
while read -r ref id link; do
	[ -n "$link" ] || echo "create $ref $id"
done <"$list" >"$found"
own update-ref --stdin <"$found"
if branch=$(host symbolic-ref -q HEAD); then
	own symbolic-ref HEAD "$branch"
else
	branch=
	own update-ref --no-deref HEAD "$(host rev-parse HEAD)"
fi

# The name of a user in the URL may come with a password.
if url=$(host config --local --get remote.origin.url); then
	case $url in
	http://* | https://*)
		rest=${url#*://}
		at=${rest%%/*}
		url="${url%%://*}://${at##*@}${rest#"$at"}"
		;;
	esac
	own config remote.origin.url "$url"
	own config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'
	for key in remote merge; do
		if value=$(host config --local --get "branch.${branch#refs/heads/}.$key"); then
			own config "branch.${branch#refs/heads/}.$key" "$value"
		fi
	done
fi
if own rev-parse -q --verify HEAD >/dev/null; then own reset -q --hard; fi

# What git ignores and .worktreeinclude lists comes along. Git quotes odd names.
if [ -f "$src/.worktreeinclude" ]; then
	cd "$src"
	host ls-files --others --ignored --exclude-from="$src/.worktreeinclude" >"$list"
	host check-ignore --stdin <"$list" >"$found" || [ $? = 1 ]
	while IFS= read -r name; do
		case $name in
		\"*)
			echo "$name: .worktreeinclude takes no such name along"
			exit 1
			;;
		*/*) mkdir -p "$to/${name%/*}" ;;
		esac
		if [ -L "$name" ] || [ -f "$name" ]; then cp -P -p "$src/$name" "$to/$name"; fi
	done <"$found"
fi
rm -f "$list" "$found"
