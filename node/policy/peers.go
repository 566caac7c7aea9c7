package policy

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Peers resolves the peers of rules. It keeps what it found: one is for one look at the cluster.
type Peers struct {
	Pods       func(namespace string) ([]*corev1.Pod, error)
	Namespaces func() ([]*corev1.Namespace, error)
	found      map[*networkingv1.NetworkPolicyPeer][]netip.Prefix
}

// resolve returns the addresses of a peer of a policy in namespace that have the family of the
// pod's own.
func (ps *Peers) resolve(namespace string, peer *networkingv1.NetworkPolicyPeer, own netip.Addr) ([]netip.Prefix, error) {
	if peer.IPBlock != nil {
		return block(peer.IPBlock, own), nil
	}
	if peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return nil, nil
	}
	all, known := ps.found[peer]
	if !known {
		var err error
		if all, err = ps.selected(namespace, peer); err != nil {
			return nil, err
		}
		if ps.found == nil {
			ps.found = map[*networkingv1.NetworkPolicyPeer][]netip.Prefix{}
		}
		ps.found[peer] = all
	}
	var clients []netip.Prefix
	for _, c := range all {
		// What connects from the pod's own address is any program of its host, not the pod.
		if c.Addr().Is4() == own.Is4() && c.Addr() != own {
			clients = append(clients, c)
		}
	}
	return clients, nil
}

// selected are the addresses of all pods that a peer's selectors name.
func (ps *Peers) selected(namespace string, peer *networkingv1.NetworkPolicyPeer) ([]netip.Prefix, error) {
	chosen := labels.Everything()
	if peer.PodSelector != nil {
		var err error
		if chosen, err = metav1.LabelSelectorAsSelector(peer.PodSelector); err != nil {
			return nil, fmt.Errorf("podSelector: %w", err)
		}
	}
	namespaces := []string{namespace}
	if peer.NamespaceSelector != nil {
		var err error
		if namespaces, err = ps.matching(peer.NamespaceSelector); err != nil {
			return nil, err
		}
	}
	var all []netip.Prefix
	for _, n := range namespaces {
		pods, err := ps.Pods(n)
		if err != nil {
			return nil, err
		}
		for _, p := range pods {
			if chosen.Matches(labels.Set(p.Labels)) {
				all = append(all, addresses(p)...)
			}
		}
	}
	return all, nil
}

func (ps *Peers) matching(selector *metav1.LabelSelector) (names []string, err error) {
	chosen, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	all, err := ps.Namespaces()
	for _, n := range all {
		if chosen.Matches(labels.Set(n.Labels)) {
			names = append(names, n.Name)
		}
	}
	return names, err
}

// addresses are those of a pod alone. One in its host's network has the host's address, and one
// that is over may have lost its own to another pod.
func addresses(p *corev1.Pod) (all []netip.Prefix) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Zone() == "" {
			a = a.Unmap()
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}

// block is a range without its exceptions, if it has own's family. One that cannot be read admits
// nobody.
func block(b *networkingv1.IPBlock, own netip.Addr) []netip.Prefix {
	whole, err := netip.ParsePrefix(b.CIDR)
	if err != nil || whole.Addr().Is4In6() || whole.Addr().Is4() != own.Is4() {
		return nil
	}
	var except []netip.Prefix
	for _, text := range b.Except {
		e, err := netip.ParsePrefix(text)
		if err != nil || e.Addr().Is4In6() {
			return nil
		}
		except = append(except, e.Masked())
	}
	return appendWithout(nil, whole.Masked(), except)
}
