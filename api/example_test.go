package api_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// A session: one sandbox, many commands. The sandbox outlives this program, and
// the next one with the same name finds it.
func Example() {
	ctx := context.Background()
	client := api.New(api.Options{Reconnect: time.Minute})
	defer client.Close()

	box, err := client.Create(ctx, &caissonv1.CreateRequest{Ensure: true, Spec: &caissonv1.SandboxSpec{
		Name:        "agent",
		IdleTimeout: durationpb.New(30 * time.Minute),
	}})
	if errors.Is(err, sbxerr.DaemonOff) {
		log.Fatal("caissond does not run")
	}
	if err != nil {
		log.Fatal(err)
	}

	// A short command, in one request.
	out, err := client.Output(ctx, box.Id, &caissonv1.ExecSpec{Args: []string{"id", "-u"}}, nil)
	if err != nil {
		log.Fatal(err) // a command that fails is a result, and no error
	}
	fmt.Printf("%s exit code %d\n", out.Stdout, out.Result.ExitCode)

	// A long one, as it goes on. It survives a restart of the daemon.
	result, err := client.Exec(ctx, box.Id, &caissonv1.ExecSpec{Shell: "for i in 1 2 3; do echo $i; sleep 1; done"}, api.IO{
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.ExitCode)
}

// A command in the background, which is attached to later: by this program, or
// by another one that knows its ID.
func ExampleClient_Attach() {
	ctx := context.Background()
	client := api.Dial(api.DefaultSocket)
	defer client.Close()
	exec, err := client.Start(ctx, "agent", &caissonv1.ExecSpec{Args: []string{"make", "test"}})
	if err != nil {
		log.Fatal(err)
	}
	result, err := client.Attach(ctx, "agent", exec.Id, api.AttachOptions{}, api.IO{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.ExitCode)
}

// Files go in and out with the rights of the sandbox's user.
func ExampleClient_WriteFile() {
	ctx := context.Background()
	client := api.Dial(api.DefaultSocket)
	defer client.Close()
	header := &caissonv1.WriteFileHeader{Ref: "agent", Path: "/tmp/in/data.csv", MakeParents: true}
	if _, err := client.WriteFile(ctx, header, strings.NewReader("a,b\n")); err != nil {
		log.Fatal(err)
	}
	file, err := client.ReadFile(ctx, &caissonv1.ReadFileRequest{Ref: "agent", Path: "/tmp/in/data.csv"}, os.Stdout)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(file.SizeBytes)
}

// What a sandbox tried to reach, until it ends.
func ExampleClient_Traffic() {
	ctx := context.Background()
	client := api.Dial(api.DefaultSocket)
	defer client.Close()
	err := client.Traffic(ctx, &caissonv1.TrafficRequest{Ref: "agent", Follow: true}, func(t *caissonv1.TrafficResponse) error {
		_, err := fmt.Println(t.Verdict, t.Name, t.Port, t.Rule)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
