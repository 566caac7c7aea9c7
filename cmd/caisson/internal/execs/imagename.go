package execs

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// withImage explains a command that is absent because it is the name of an image: as elsewhere,
// or of one that is here, where no flag names another.
func withImage(a *cli.App, ctx context.Context, client *api.Client, err error, image string, args []string) error {
	if sbxerr.Of(err) != sbxerr.CommandAbsent || len(args) == 0 || strings.HasPrefix(args[0], "/") {
		return err
	}
	if !imageName().MatchString(args[0]) {
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
	e.Remedy = "the first word is the command; an image is given by a flag: caisson run --image " + cli.QuoteArgs(words)
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

// imageName is a word that is an image elsewhere and hardly a command.
var imageName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(alpine|ubuntu|debian|busybox|fedora|centos|rockylinux|node|python|golang|ruby|rust|openjdk)(:[\w.-]+)?$|^[\w.-]+(/[\w.-]+)*:[\w.-]+$`)
})
