package register

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Taken is the name of a node that another machine keeps alive.
type Taken struct{ Node, Address string }

// Error implements error.
func (t *Taken) Error() string {
	return fmt.Sprintf("the node %s is another machine's, at %s, and its lease is renewed: give another --node-name, or stop it and wait %d s", t.Node, t.Address, leaseFor)
}

// Claim waits until the API server says whose the node's name is. One that another machine or
// daemon left, or that nobody has, is ours.
func (r *Registration) Claim(ctx context.Context) error {
	for ctx.Err() == nil {
		taken, err := r.taken(ctx)
		if taken != nil {
			return taken
		}
		if err == nil {
			return nil
		}
		r.Log.Warn("whose the node's name is cannot be asked", "error", err)
		sleep(ctx, time.Second)
	}
	return ctx.Err()
}

func (r *Registration) taken(ctx context.Context) (*Taken, error) {
	node, err := r.Client.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{})
	if err != nil {
		return nil, unlessAbsent(err)
	}
	theirs := node.Status.NodeInfo
	if theirs.MachineID == "" || theirs.MachineID == r.Machine && theirs.SystemUUID == r.Instance {
		return nil, nil
	}
	lease, err := r.Client.CoordinationV1().Leases(leases).Get(ctx, r.Node, metav1.GetOptions{})
	if err != nil {
		return nil, unlessAbsent(err)
	}
	if lease.Spec.RenewTime == nil || time.Since(lease.Spec.RenewTime.Time) > leaseFor*time.Second {
		return nil, nil
	}
	return &Taken{Node: r.Node, Address: addressOf(node)}, nil
}

func unlessAbsent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func addressOf(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return "an unknown address"
}

// Machine returns what tells this machine from others.
func Machine() string {
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(id) > 1 {
		return strings.TrimSpace(string(id))
	}
	name, _ := os.Hostname() // a machine without either is not told from others
	return name
}
