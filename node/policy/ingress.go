// Package policy says who may connect to a pod, by the NetworkPolicies of its namespace. It
// touches nothing. The rules are those of NetworkPolicySpec in the reference of
// networking.k8s.io/v1. What it cannot read admits nobody.
package policy

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Ingress is who may connect to one pod. Its zero value admits nobody.
type Ingress struct {
	all   bool // no policy selects the pod
	rules []rule
}

// rule admits clients to ports.
type rule struct {
	everyPort bool
	ports     []span
	anybody   bool
	clients   []netip.Prefix // sorted
}

type span struct{ first, last int32 }

// All admits anybody: no policy counts.
func All() Ingress { return Ingress{all: true} }

// Of returns who may connect to a pod at its address. Its error is about peers that could not be
// resolved, which admit nobody; the Ingress counts then, too.
func Of(policies []*networkingv1.NetworkPolicy, p *corev1.Pod, address netip.Addr, peers *Peers) (Ingress, error) {
	in := All()
	var errs []error
	policies = slices.SortedFunc(slices.Values(policies), func(a, b *networkingv1.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	for _, np := range policies {
		if !selects(np, p) {
			continue
		}
		in.all = false
		for i := range np.Spec.Ingress {
			r, err := compile(np.Namespace, &np.Spec.Ingress[i], p, address, peers)
			if err != nil {
				errs = append(errs, err)
			}
			in.rules = append(in.rules, r)
		}
	}
	return in, errors.Join(errs...)
}

// selects says whether a policy is in force for what connects to p. A selector that cannot be read
// selects it.
func selects(np *networkingv1.NetworkPolicy, p *corev1.Pod) bool {
	types := np.Spec.PolicyTypes
	if np.Namespace != p.Namespace || len(types) > 0 && !slices.Contains(types, networkingv1.PolicyTypeIngress) {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(&np.Spec.PodSelector)
	return err != nil || s.Matches(labels.Set(p.Labels))
}

func compile(namespace string, from *networkingv1.NetworkPolicyIngressRule, p *corev1.Pod, address netip.Addr, peers *Peers) (rule, error) {
	r := rule{everyPort: len(from.Ports) == 0, anybody: len(from.From) == 0}
	for _, port := range from.Ports {
		r.ports = append(r.ports, spans(port, p)...)
	}
	var errs []error
	for i := range from.From {
		clients, err := peers.resolve(namespace, &from.From[i], address)
		if err != nil {
			errs = append(errs, err)
		}
		r.clients = append(r.clients, clients...)
	}
	r.clients = merge(r.clients)
	return r, errors.Join(errs...)
}

// spans are the TCP ports that one entry of a rule means: a name is that of the pod's own ports.
func spans(port networkingv1.NetworkPolicyPort, p *corev1.Pod) []span {
	switch {
	case port.Protocol != nil && *port.Protocol != corev1.ProtocolTCP:
		return nil
	case port.Port == nil:
		return []span{{0, 65535}}
	case port.Port.Type == intstr.Int && port.EndPort != nil:
		return []span{{port.Port.IntVal, *port.EndPort}}
	case port.Port.Type == intstr.Int:
		return []span{{port.Port.IntVal, port.Port.IntVal}}
	}
	var named []span
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, own := range c.Ports {
			if own.Name == port.Port.StrVal && (own.Protocol == "" || own.Protocol == corev1.ProtocolTCP) {
				named = append(named, span{own.ContainerPort, own.ContainerPort})
			}
		}
	}
	return named
}

func (r rule) covers(port uint16) bool {
	return r.everyPort || slices.ContainsFunc(r.ports, func(s span) bool { return s.first <= int32(port) && int32(port) <= s.last })
}

// Access returns who may connect to a port of the pod.
func (in Ingress) Access(port uint16) Access {
	if in.all {
		return Access{Any: true}
	}
	var clients []netip.Prefix
	for _, r := range in.rules {
		if !r.covers(port) {
			continue
		}
		if r.anybody {
			return Access{Any: true}
		}
		clients = append(clients, r.clients...)
	}
	clients = merge(clients)
	most := min(len(clients), Most)
	return Access{Clients: clients[:most:most], Beyond: len(clients) - most}
}
