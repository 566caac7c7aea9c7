package cli

// What people type who know Docker, and what to type here. docs/how-to/coming-from.md has
// all of it.

// verbsElsewhere are commands.
var verbsElsewhere = map[string]string{
	"images":  "caisson image ls",
	"rmi":     "caisson image rm",
	"login":   "docker login: a pull uses the credentials of ~/.docker/config.json, and their helpers",
	"load":    "caisson image import",
	"import":  "caisson image import",
	"pull":    "caisson image pull, where the configuration allows the registry",
	"push":    "caisson image save: it writes an archive, and to no registry",
	"build":   "caisson image build NAME [-f FILE] [CONTEXT]",
	"tag":     "caisson image tag",
	"save":    "caisson image save",
	"commit":  "caisson cp: the root is read-only, and files are copied out",
	"export":  "caisson cp: the root is read-only, and files are copied out",
	"start":   "caisson restart: it makes an ended sandbox anew",
	"unpause": "caisson resume",
	"rename":  "caisson create --name: a name stays",
	"prune":   "caisson cleanup",
	"system":  "caisson cleanup, info or doctor",
	"network": "--allow and --network of create and run",
}

// flagsElsewhere are flags of run, create and exec.
var flagsElsewhere = map[string]string{
	"a":                "caisson ls lists all sandboxes",
	"v":                "--workspace DIR[:PATH][:ro] binds a directory of the host, by default at /workspace; --mount type=bind,src=DIR,dst=PATH binds others, and --mount type=volume,src=NAME,dst=PATH a volume",
	"volume":           "--workspace DIR[:PATH][:ro] binds a directory of the host, by default at /workspace; --mount type=bind,src=DIR,dst=PATH binds others, and --mount type=volume,src=NAME,dst=PATH a volume",
	"entrypoint":       "give the whole command: the entry point of an image is used with run --image IMAGE without a command",
	"privileged":       "no sandbox gets a capability",
	"cap-add":          "no sandbox gets a capability",
	"cap-drop":         "every capability is dropped",
	"read-only":        "the root is always read-only",
	"device":           "no device of the host is passed in",
	"gpus":             "no device of the host is passed in",
	"restart":          "the caller decides",
	"security-opt":     "--profile chooses the seccomp profile",
	"memory-swap":      "there is never swap",
	"device-read-bps":  "--io-read-bps RATE, of every disk with files of the sandbox",
	"device-write-bps": "--io-write-bps RATE, of every disk with files of the sandbox",
	"pids-limit":       "--pids",
	"net":              "--network or --allow",
	"init":             "there always is one",
	"r":                "cp copies a directory with all that is in it",
	"recursive":        "cp copies a directory with all that is in it",
	"w":                "run and exec take the working directory of a command",
	"workdir":          "run and exec take the working directory of a command",
}
