package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// calls are the commands of remedies and what a user of an SDK calls instead, the longest
// first. The commands are regular expressions of both languages.
var calls = [][2]string{
	{`caisson update --`, "Sandbox.update with --"},
	{`caisson create --mount type=snapshot,src=[^\s;:()]*`, "Sandbox.create() with a mount of type snapshot"},
	{`caisson create --`, "Sandbox.create with --"},
	{`caisson spec --`, "Client.spec with --"},
	{`\(create --nested\)`, "(nested of Sandbox.create)"},
	{`caisson run\b(?! --)`, "Client.run()"},
	{`by -m and --cpus`, "by memory and cpus"},
	{`caisson ls(?: --json)?`, "Client.list()"},
	{`caisson ps SANDBOX`, "Sandbox.processes()"},
	{`caisson inspect SANDBOX`, "Sandbox.inspect()"},
	{`caisson resume [^\s,;:()]+`, "Sandbox.resume()"},
	{`caisson rm (?:--force )?[^\s,;:()]+`, "Sandbox.remove()"},
	{`caisson kill --all`, "Process.kill()"},
	{`caisson port [^\s,;:()]+`, "Sandbox.ports"},
	{`caisson cp`, "Sandbox.files.copy_in()"},
	{`caisson policy log SANDBOX`, "Sandbox.policy.traffic()"},
	{`caisson policy check`, "Sandbox.policy.check()"},
	{`caisson image pull, import or from-host`, "Client.images.pull(), load() or from_host()"},
	{`(?:caisson image import|import it with) --name NAME`, "Client.images.load() with a name"},
	{`caisson image import`, "Client.images.load()"},
	{`caisson image save`, "Client.images.save()"},
	{`caisson image prune --filter unused`, "Client.images.prune() with unused=True"},
	{`caisson image ls`, "Client.images.list()"},
	{`caisson image rm`, "Client.images.remove()"},
	{`caisson image pull`, "Client.images.pull()"},
	{`caisson image build`, "Client.images.build()"},
	{`caisson volume rm or prune`, "Client.volumes.remove() or prune()"},
	{`caisson config reload`, "Client.reload_config()"},
	{`caisson secret ls`, "Client.secrets.list()"},
	{`caisson secret set`, "Client.secrets.set()"},
	{`caisson secret rm`, "Client.secrets.remove()"},
	{`caisson volume ls`, "Client.volumes.list()"},
	{`caisson snapshot ls`, "Client.snapshots.list()"},
	{`caisson snapshot export`, "Client.snapshots.save()"},
	{`caisson snapshot import(?: FILE)?`, "Client.snapshots.load()"},
	{`caisson snapshot rm(?: [^\s,;:()]+)?`, "Client.snapshots.remove()"},
	{`caisson template ls`, "Client.templates.list()"},
	{`caisson template inspect [^\s,;:()]+`, "Client.templates.get()"},
	{`caisson template build [^\s,;:()]+`, "Client.templates.build()"},
	{`caisson changes ls`, "Client.changesets.list()"},
	{`caisson apply SANDBOX PATH`, "Sandbox.apply() with paths"},
	{`caisson apply [^\s,;:()]+`, "Sandbox.apply()"},
	{`caisson diff`, "Sandbox.diff()"},
	{`caisson doctor(?: --json)?`, "Client.doctor()"},
	{`caisson cleanup`, "Client.cleanup()"},
	{`caisson help shows the usage`, "the README of the SDK shows the calls"},
}

// flags are those of the command line that an option has another name for.
var flags = [][2]string{
	{"link", "links"}, {"volume", "mounts"}, {"secret", "secrets"}, {"path", "paths"}, {"package", "packages"},
	{"max-bytes", "max_bytes"}, {"from", "from"},
}

// writeRemedies writes what replaces the command line's words in remedies.
func writeRemedies(w io.Writer, groups []group, language string) {
	python := language == "python"
	lists, switches := names(groups, python, "texts", "counts", "mounts", "rules"), names(groups, python, "flag", "nested")
	others := names(groups, python, "text", "count", "size", "cpus", "time", "map", "secrets", "workspace", "inputs", "rlimits", "terminal")
	if python {
		fmt.Fprint(w, "\n\nCALLS = [\n")
		for _, c := range calls {
			fmt.Fprintf(w, "    (r\"%s\", %q),\n", c[0], c[1])
		}
		fmt.Fprint(w, "]\n\"\"\"The commands of remedies, and what is called instead.\"\"\"\n\nFLAGS = {\n")
		for _, f := range flags {
			fmt.Fprintf(w, "    %q: %q,\n", f[0], pythonName(f[1]))
		}
		fmt.Fprintf(w, "}\n\"\"\"Flags that an option has another name for.\"\"\"\n\nLISTS = {%s}\n\nSWITCHES = {%s}\n\nOTHERS = {%s}\n", lists, switches, others)
		return
	}
	fmt.Fprint(w, "\n/** The commands of remedies, and what is called instead. */\nexport const calls: readonly (readonly [RegExp, string])[] = [\n")
	for _, c := range calls {
		fmt.Fprintf(w, "  [/%s/g, '%s'],\n", c[0], strings.NewReplacer("from_host", "fromHost", "copy_in", "copyIn", "=True", ": true").Replace(c[1]))
	}
	fmt.Fprint(w, "]\n\n/** Flags that an option has another name for. */\nexport const flags: Readonly<Record<string, string>> = {\n")
	for _, f := range flags {
		fmt.Fprintf(w, "  '%s': '%s',\n", f[0], camel(f[1]))
	}
	fmt.Fprintf(w, "}\n\nexport const lists: readonly string[] = [%s]\n\nexport const switches: readonly string[] = [%s]\n\nexport const others: readonly string[] = [%s]\n", lists, switches, others)
}

// names are those of the options of some forms, quoted.
func names(groups []group, python bool, forms ...string) string {
	var list []string
	for _, g := range groups {
		for _, o := range g.options {
			name := o.name
			if !python {
				name = camel(name)
			}
			quoted := "'" + name + "'"
			if python {
				quoted = fmt.Sprintf("%q", pythonName(name))
			}
			if slices.Contains(forms, o.form) && !slices.Contains(list, quoted) {
				list = append(list, quoted)
			}
		}
	}
	return strings.Join(list, ", ")
}
