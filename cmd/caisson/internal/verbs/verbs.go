// Package verbs puts all verbs of the CLI together.
package verbs

import (
	"github.com/caisson-run/caisson/cmd/caisson/internal/access"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/execs"
	"github.com/caisson-run/caisson/cmd/caisson/internal/host"
	"github.com/caisson-run/caisson/cmd/caisson/internal/images"
	"github.com/caisson-run/caisson/cmd/caisson/internal/policies"
	"github.com/caisson-run/caisson/cmd/caisson/internal/sandboxes"
	"github.com/caisson-run/caisson/cmd/caisson/internal/secrets"
	"github.com/caisson-run/caisson/cmd/caisson/internal/volumes"
	"github.com/caisson-run/caisson/cmd/caisson/internal/watch"
)

// Groups are all verbs, in the groups of the root's help; agents are those of the programs of
// agents.
func Groups(agents ...cli.Verb) []cli.Group {
	return []cli.Group{
		{Title: "Commands", Verbs: []cli.Verb{
			{Name: "run", Command: execs.RunCommand},
			{Name: "exec", Command: execs.ExecCommand},
			{Name: "shell", Command: execs.ShellCommand},
			{Name: "attach", Command: execs.AttachCommand},
			{Name: "ps", Command: execs.PsCommand},
			{Name: "logs", Command: execs.LogsCommand},
			{Name: "wait", Command: execs.WaitCommand},
			{Name: "kill", Command: execs.KillCommand},
			{Name: "cp", Command: execs.CpCommand},
		}},
		{Title: "Sandboxes", Verbs: []cli.Verb{
			{Name: "create", Command: sandboxes.CreateCommand},
			{Name: "ls", Command: sandboxes.LsCommand},
			{Name: "inspect", Command: sandboxes.InspectCommand},
			{Name: "port", Command: sandboxes.PortCommand},
			{Name: "port-forward", Command: sandboxes.PortForwardCommand},
			{Name: "update", Command: sandboxes.UpdateCommand},
			{Name: "attach-workspace", Command: sandboxes.AttachWorkspaceCommand},
			{Name: "attach-snapshot", Command: sandboxes.AttachSnapshotCommand},
			{Name: "pause", Command: sandboxes.PauseCommand},
			{Name: "resume", Command: sandboxes.ResumeCommand},
			{Name: "stop", Command: sandboxes.StopCommand},
			{Name: "restart", Command: sandboxes.RestartCommand},
			{Name: "clean", Command: sandboxes.CleanCommand},
			{Name: "snapshot", Command: sandboxes.SnapshotCommand},
			{Name: "rewind", Command: sandboxes.RewindCommand},
			{Name: "fork", Command: sandboxes.ForkCommand},
			{Name: "diff", Command: sandboxes.DiffCommand},
			{Name: "apply", Command: sandboxes.ApplyCommand},
			{Name: "changes", Command: sandboxes.ChangesCommand},
			{Name: "discard", Command: sandboxes.DiscardCommand},
			{Name: "rm", Command: sandboxes.RmCommand},
		}},
		{Title: "Agents", Verbs: append([]cli.Verb{
			{Name: cli.ClaudeShellVerb, Command: execs.ClaudeShellCommand},
		}, agents...)},
		{Title: "Images, volumes and network", Verbs: []cli.Verb{
			{Name: "image", Command: images.ImageCommand},
			{Name: "template", Command: images.TemplateCommand},
			{Name: "bundle", Command: watch.BundleCommand},
			{Name: "volume", Command: volumes.VolumeCommand},
			{Name: "secret", Command: secrets.SecretCommand},
			{Name: "policy", Command: policies.PolicyCommand},
		}},
		{Title: "Watching", Verbs: []cli.Verb{
			{Name: "stats", Command: watch.StatsCommand},
			{Name: "usage", Command: watch.UsageCommand},
			{Name: "history", Command: watch.HistoryCommand},
			{Name: "events", Command: watch.EventsCommand},
			{Name: "info", Command: watch.InfoCommand},
			{Name: "audit", Command: watch.AuditCommand},
			{Name: "page", Command: watch.PageCommand},
			{Name: "ping", Command: watch.PingCommand},
		}},
		{Title: "Host", Verbs: []cli.Verb{
			{Name: "doctor", Command: host.DoctorCommand},
			{Name: "capabilities", Command: host.CapabilitiesCommand},
			{Name: "spec", Command: host.SpecCommand},
			{Name: "explain", Command: host.ExplainCommand},
			{Name: "config", Command: host.ConfigCommand},
			{Name: "backup", Command: access.BackupCommand},
			{Name: "restore", Command: access.RestoreCommand},
			{Name: "key", Command: access.KeyCommand},
			{Name: "context", Command: access.ContextCommand},
			{Name: "dial-stdio", Command: access.DialStdioCommand},
			{Name: "cleanup", Command: host.CleanupCommand},
			{Name: "daemon", Command: host.DaemonCommand},
			{Name: "version", Command: host.VersionCommand},
			{Name: "completion", Command: (*cli.App).CompletionCommand},
		}},
	}
}
