package cli

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

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

// imageName is a word that is an image elsewhere and hardly a command.
var imageName = regexp.MustCompile(`^(alpine|ubuntu|debian|busybox|fedora|centos|rockylinux|node|python|golang|ruby|rust|openjdk)(:[\w.-]+)?$|^[\w.-]+(/[\w.-]+)*:[\w.-]+$`)

// withImage explains a command that is absent because it is the name of an image: as elsewhere,
// or of one that is here, where no flag names another.
func (a *App) withImage(ctx context.Context, client *api.Client, err error, image string, args []string) error {
	if sbxerr.Of(err) != sbxerr.CommandAbsent || len(args) == 0 || strings.HasPrefix(args[0], "/") {
		return err
	}
	if !imageName.MatchString(args[0]) {
		if image != "" {
			return err
		}
		if _, absent := client.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: args[0]}); absent != nil {
			return err // of the command
		}
	}
	e := *api.Explain(err)
	words := slices.Clone(args)
	if len(args) > 1 {
		words = slices.Insert(words, 1, "--")
	} else if !hasCommand(ctx, client, args[0]) {
		words = append(words, "--", "sh")
	}
	e.Remedy = "the first word is the command; an image is given by a flag: caisson run --image " + QuoteArgs(words)
	return &e
}

// hasCommand reports whether an image that is here has a command of its own. One that is not
// here is taken to have one.
func hasCommand(ctx context.Context, client *api.Client, image string) bool {
	r, err := client.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: image})
	if err != nil {
		return true
	}
	var file struct {
		Config struct{ Entrypoint, Cmd []string }
	}
	err = json.Unmarshal(r.ConfigJson, &file)
	return err == nil && len(file.Config.Entrypoint)+len(file.Config.Cmd) > 0
}
