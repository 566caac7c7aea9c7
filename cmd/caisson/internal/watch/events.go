package watch

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apijson"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// eventPrefix begins the type of every event on the wire.
const eventPrefix = "run.caisson."

func EventsCommand(a *cli.App) *cobra.Command {
	var req caissonv1.WatchRequest
	cmd := &cobra.Command{
		Use:   "events [flags]",
		Short: "Show events of your sandboxes and, for root, of the host",
		Long: "Show events of your sandboxes and, for root, of the host, oldest first. The daemon keeps\n" +
			"the newest ones in memory. With --follow it begins now, unless --since says more.\n" +
			"With --json each event is a CloudEvents object on one line.\n\n" +
			"Filters are KEY=VALUE. Values of one key are alternatives, and all keys must match. Keys:\n" +
			"type, sandbox, exec, session, task, image, caller, code, verdict, request.",
		Example: "  caisson events --follow --filter 'type=exec.*' --filter sandbox=agent\n  caisson events --since 10m --filter verdict=refused --json",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			p.NotEmpty("since")
			if req.Follow && !cmd.Flags().Changed("since") {
				req.Since = "0s" // from now on
			}
			if err := p.End(&req); err != nil {
				return err
			}
			return a.With(cmd.Context(), func(client *api.Client) error {
				return client.Watch(cmd.Context(), &req, func(e *caissonv1.Event) error { return printEvent(a, e) })
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&req.Follow, "follow", "f", false, "follow from now on, until interrupted")
	f.StringVar(&req.Since, "since", "", "start after the event with this ID, at a time, or a duration ago: `ID|TIME|DURATION`")
	f.StringArrayVar(&req.Filter, "filter", nil, "show events that match `KEY=VALUE` (repeatable)")
	a.OutputFlags(cmd)
	return cmd
}

func printEvent(a *cli.App, e *caissonv1.Event) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSONLine(e)
	}
	if e.Id == "" {
		lost := fmt.Sprintf("%d events are missing here: they came faster than they were read", e.GetData().GetLost())
		a.Progress("caisson: warning: " + cmp.Or(e.GetData().GetMessage(), lost))
		return nil
	}
	kind := strings.TrimPrefix(e.Type, eventPrefix)
	line := fmt.Sprintf("%s %-16s %s", e.Time.AsTime().UTC().Format("2006-01-02T15:04:05.000Z"), kind, eventText(e.GetData()))
	return a.PrintLine("%s", cli.Printable(strings.TrimRight(line, " ")))
}

// eventText tells the fields of d as NAME=VALUE, the name of the sandbox first.
func eventText(d *caissonv1.EventData) string {
	var words []string
	if name := cmp.Or(d.GetName(), d.GetSandboxId()); name != "" {
		words = append(words, name)
	}
	m := d.ProtoReflect()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch f.Name() {
		case "name", "sandbox_id", "request_id", "stages", "env", "image_digest", "policy_digest", "filter_digest":
			continue // for programs
		}
		if m.Has(f) {
			words = append(words, string(f.Name())+"="+eventValue(f, m.Get(f)))
		}
	}
	return strings.Join(words, " ")
}

func eventValue(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	text := v.String()
	if f.Message() != nil && !f.IsList() { // a duration
		text = strings.Trim(string(apijson.Marshal(v.Message().Interface())), `"`)
	}
	if f.IsList() {
		var list []string
		for i := range v.List().Len() {
			list = append(list, v.List().Get(i).String())
		}
		text = strings.Join(list, " ")
	}
	if text == "" || strings.ContainsAny(text, " \t\n\"") {
		return fmt.Sprintf("%q", text)
	}
	return text
}
