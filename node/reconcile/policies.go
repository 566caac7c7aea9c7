package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/pod"
	"github.com/caisson-run/caisson/node/policy"
)

// ClusterRoles of deploy/kubernetes/nodes.yaml.
const (
	rolePolicies = "caisson-policies"
	rolePeers    = "caisson-policy-peers"
)

// policies are the NetworkPolicies of the cluster. Its pods and namespaces are read from the first
// policy on that names some by a selector.
type policies struct {
	policies   *feed[*networkingv1.NetworkPolicy]
	pods       *feed[*corev1.Pod]
	namespaces *feed[*corev1.Namespace]
	changed    chan struct{} // has one element when something of them did
}

func newPolicies(c Config) *policies {
	ps := &policies{changed: make(chan struct{}, 1)}
	changed := func() {
		select {
		case ps.changed <- struct{}{}:
		default:
		}
	}
	all, pods, namespaces := c.Client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll), c.Client.CoreV1().Pods(metav1.NamespaceAll), c.Client.CoreV1().Namespaces()
	ps.policies = newFeed(c, "networkpolicies", &networkingv1.NetworkPolicy{}, changed, nil, all.List, all.Watch)
	ps.pods = newFeed(c, "pods", &corev1.Pod{}, changed, peerChanged, pods.List, pods.Watch)
	_ = ps.pods.SetTransform(asPeer) // it fails only of an informer that runs
	ps.namespaces = newFeed(c, "namespaces", &corev1.Namespace{}, changed, nil, namespaces.List, namespaces.Watch)
	return ps
}

// asPeer keeps of a pod what makes it a peer: a node holds all pods of the cluster.
func asPeer(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, Labels: p.Labels, ResourceVersion: p.ResourceVersion},
		Spec:       corev1.PodSpec{HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}, nil
}

func peerChanged(old, now *corev1.Pod) bool {
	return !equality.Semantic.DeepEqual(old.Labels, now.Labels) || !equality.Semantic.DeepEqual(old.Status, now.Status)
}

// problem is why clients of a pod are not admitted although a policy may say so.
type problem struct{ reason, message string }

// peers resolves selectors as of now.
func (r *Reconciler) peers(ctx context.Context) *policy.Peers {
	if r.policies == nil {
		return nil
	}
	return &policy.Peers{
		Pods:       func(namespace string) ([]*corev1.Pod, error) { return r.policies.pods.read(ctx, namespace) },
		Namespaces: func() ([]*corev1.Namespace, error) { return r.policies.namespaces.read(ctx, metav1.NamespaceAll) },
	}
}

// ingress returns who may connect to a pod at its address, and tells by an event of what cannot be
// read or done.
func (r *Reconciler) ingress(ctx context.Context, p *corev1.Pod) policy.Ingress {
	in, why := r.look(ctx, p, r.peers(ctx))
	r.mu.Lock()
	known := r.problems[p.UID]
	r.problems[p.UID] = why
	r.mu.Unlock()
	if why != known && why.reason != "" && ctx.Err() == nil {
		r.Events.Event(p, corev1.EventTypeWarning, why.reason, why.message)
	}
	return in
}

// look decides who may connect to a pod. What cannot be read admits nobody.
func (r *Reconciler) look(ctx context.Context, p *corev1.Pod, peers *policy.Peers) (policy.Ingress, problem) {
	if r.policies == nil {
		return policy.All(), problem{}
	}
	at, err := netip.ParseAddr(r.Addresses.Of(p.UID))
	if err != nil { // it has none, so nothing is published
		return policy.Ingress{}, problem{}
	}
	all, err := r.policies.policies.read(ctx, p.Namespace)
	if err != nil {
		return policy.Ingress{}, problem{"NetworkPolicyUnreadable", fmt.Sprintf("nobody may connect to the pod: %v; "+
			"apply deploy/kubernetes/nodes.yaml, which has the ClusterRole %s, or start caisson-node with --network-policies=ignore", err, rolePolicies)}
	}
	in, err := policy.Of(all, p, at, peers)
	if err != nil {
		return in, problem{"NetworkPolicyPeersUnreadable", fmt.Sprintf("peers by podSelector and namespaceSelector are not admitted: %v; "+
			"bind the ClusterRole %s to the user system:node:%s, or name addresses by ipBlock", err, rolePeers, r.Node)}
	}
	return in, beyond(p, in)
}

// beyond says which ports have more clients than are admitted.
func beyond(p *corev1.Pod, in policy.Ingress) problem {
	var ports []string
	for _, n := range pod.Ports(p) {
		if in.Access(n).Beyond > 0 {
			ports = append(ports, fmt.Sprint(n))
		}
	}
	if len(ports) == 0 {
		return problem{}
	}
	return problem{"NetworkPolicyTooLong", fmt.Sprintf("NetworkPolicies admit more than %d addresses and ranges to the port %s, and those above are not admitted; "+
		"name wider ranges by ipBlock", policy.Most, strings.Join(ports, ", "))}
}

// guard lets those connect to the live sandboxes of a pod who may, and cuts the connections of others.
func (r *Reconciler) guard(ctx context.Context, p *corev1.Pod, rs runs) error {
	live := slices.DeleteFunc(rs.live(), func(run run) bool { return run.ip == "" })
	if len(live) == 0 || len(pod.Ports(p)) == 0 && live[0].runtime == "" {
		return r.answer(p.UID, rs, policy.Ingress{})
	}
	in := r.ingress(ctx, p)
	if ctx.Err() != nil { // nothing was read
		return ctx.Err()
	}
	errs := []error{r.answer(p.UID, rs, in)}
	for _, run := range live {
		errs = append(errs, r.admitClients(ctx, p, run, in))
	}
	return errors.Join(errs...)
}

// admitClients updates a sandbox that has other clients.
func (r *Reconciler) admitClients(ctx context.Context, p *corev1.Pod, of run, in policy.Ingress) error {
	for _, c := range pod.Containers(p) {
		if c.Name != of.container {
			continue
		}
		wanted := pod.Publish(c, of.runtime, of.ip, in)
		if !slices.ContainsFunc(wanted, func(text string) bool { return !slices.Contains(of.published, text) }) {
			return nil
		}
		_, err := r.Caisson.Update(ctx, &caissonv1.UpdateRequest{Ref: of.sandbox, Publish: &caissonv1.Rules{Rules: wanted}})
		return err
	}
	return nil
}

// settle is how long changes are collected before they count.
const settle = 200 * time.Millisecond

// followPolicies queues the pods that other clients may connect to after a change.
func (r *Reconciler) followPolicies(ctx context.Context) {
	r.policies.policies.begin(ctx)
	known := map[types.UID]policy.Ingress{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.policies.changed:
		}
		sleep(ctx, settle)
		select {
		case <-r.policies.changed:
		default:
		}
		known = r.requeue(ctx, known)
	}
}

// requeue queues the pods to which others may connect than known has, and returns what holds now.
func (r *Reconciler) requeue(ctx context.Context, known map[types.UID]policy.Ingress) map[types.UID]policy.Ingress {
	now, peers := map[types.UID]policy.Ingress{}, r.peers(ctx)
	for _, p := range r.Pods() {
		in, _ := r.look(ctx, p, peers)
		now[p.UID] = in
		if before, ok := known[p.UID]; !ok || !reflect.DeepEqual(before, in) {
			r.queue.Add(p.UID)
		}
	}
	return now
}
