package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// standIn does what agent-sandbox's controller is documented to do with Sandboxes, warm pools and
// claims, as far as a node sees it. It leaves out Services, environment, network policies, the
// conditions PodScheduled and Finished, expiry of claims, and claims without a ready member.
type standIn struct {
	plain     kubernetes.Interface
	dynamic   dynamic.Interface
	informers map[string]cache.SharedIndexInformer // by kind
	queue     workqueue.TypedRateLimitingInterface[thing]
	taken     sync.Map // UIDs of Sandboxes, and of the claims that have taken them
}

// thing names an object.
type thing struct{ kind, namespace, name string }

var kinds = map[string]schema.GroupVersionResource{
	"Sandbox":         {Group: "agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxes"},
	"SandboxTemplate": {Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxtemplates"},
	"SandboxClaim":    {Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxclaims"},
	"SandboxWarmPool": {Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxwarmpools"},
	"Pod":             corev1.SchemeGroupVersion.WithResource("pods"),
}

// object has the fields that the stand-in reads of all kinds.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodTemplate          corev1.PodTemplateSpec
		VolumeClaimTemplates []corev1.PersistentVolumeClaim
		ShutdownTime         *metav1.Time
		ShutdownPolicy       string
		OperatingMode        string
		Replicas             int
		SandboxTemplateRef   corev1.LocalObjectReference
		WarmPoolRef          corev1.LocalObjectReference
	}
	Status struct {
		Conditions []metav1.Condition
		PodIPs     []string
		Sandbox    struct{ Name string }
	}
}

// Labels of Sandboxes.
const poolLabel, claimLabel = "agents.x-k8s.io/warm-pool-sandbox", "agents.x-k8s.io/claim-uid"

// again is between two looks of a claim for a member that is ready.
const again = 100 * time.Millisecond

// run works until ctx ends.
func (s *standIn) run(ctx context.Context, config *rest.Config) error {
	var err error
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	s.plain, s.informers = site.client, map[string]cache.SharedIndexInformer{}
	s.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[thing](10*time.Millisecond, time.Second))
	all := dynamicinformer.NewDynamicSharedInformerFactory(s.dynamic, 0)
	for kind, resource := range kinds {
		s.informers[kind] = all.ForResource(resource).Informer()
		if _, err := s.informers[kind].AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { s.seen(kind, o) },
			UpdateFunc: func(old, o any) { s.seen(kind, old); s.seen(kind, o) }, // a claim has taken it from a pool
			DeleteFunc: func(o any) { s.seen(kind, o) },
		}); err != nil {
			return err
		}
	}
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	for range 8 {
		go s.work(ctx)
	}
	context.AfterFunc(ctx, s.queue.ShutDown)
	return nil
}

// seen queues an object and its owner.
func (s *standIn) seen(kind string, o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	u := o.(*unstructured.Unstructured)
	s.queue.Add(thing{kind, u.GetNamespace(), u.GetName()})
	if owner := metav1.GetControllerOf(u); owner != nil {
		s.queue.Add(thing{owner.Kind, u.GetNamespace(), owner.Name})
	}
}

func (s *standIn) work(ctx context.Context) {
	does := map[string]func(context.Context, thing, *object) error{"Sandbox": s.sandbox, "SandboxWarmPool": s.pool, "SandboxClaim": s.claim}
	for {
		next, over := s.queue.Get()
		if over {
			return
		}
		var err error
		if do := does[next.kind]; do != nil {
			if o := s.get(next); o != nil && o.DeletionTimestamp == nil {
				err = do(ctx, next, o)
			}
		}
		if err != nil { // such as a conflict: what changed has been seen by then
			s.queue.AddRateLimited(next)
		} else {
			s.queue.Forget(next)
		}
		s.queue.Done(next)
	}
}

// get returns an object as last seen, or nil.
func (s *standIn) get(t thing) *object {
	o, exists, _ := s.informers[t.kind].GetStore().GetByKey(t.namespace + "/" + t.name)
	if !exists {
		return nil
	}
	return read(o)
}

func read(from any) *object {
	text, err := json.Marshal(from)
	o := &object{}
	if err == nil {
		err = json.Unmarshal(text, o)
	}
	if err != nil {
		panic(err) // the schema has let it pass
	}
	return o
}

func (s *standIn) client(t thing) dynamic.ResourceInterface {
	return s.dynamic.Resource(kinds[t.kind]).Namespace(t.namespace)
}

func (s *standIn) patch(ctx context.Context, t thing, change map[string]any, subresource ...string) error {
	text, err := json.Marshal(change)
	if err == nil {
		_, err = s.client(t).Patch(ctx, t.name, types.MergePatchType, text, metav1.PatchOptions{}, subresource...)
	}
	return err
}

func owned(by *object) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(by, schema.FromAPIVersionAndKind(by.APIVersion, by.Kind))}
}

// sandbox has a pod of its name while it is to run, and none while it is suspended or has expired.
func (s *standIn) sandbox(ctx context.Context, t thing, o *object) error {
	expired := false
	if at := o.Spec.ShutdownTime; at != nil {
		left := time.Until(at.Time)
		if expired = left <= 0; !expired {
			s.queue.AddAfter(t, left)
		}
	}
	pod, err := s.podOf(ctx, o)
	if err != nil {
		return err
	}
	suspended := o.Spec.OperatingMode == "Suspended"
	switch stop := expired || suspended; {
	case stop && pod != nil && pod.DeletionTimestamp == nil:
		err = s.plain.CoreV1().Pods(t.namespace).Delete(ctx, t.name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
	case expired && pod == nil && o.Spec.ShutdownPolicy == "Delete":
		return s.client(t).Delete(ctx, t.name, metav1.DeleteOptions{})
	case !stop && pod == nil:
		err = s.makePod(ctx, o)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return s.tell(ctx, t, o, pod, expired, suspended)
}

// podOf returns the pod that a Sandbox has made, or nil.
func (s *standIn) podOf(ctx context.Context, o *object) (*corev1.Pod, error) {
	pod, err := s.plain.CoreV1().Pods(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// makePod makes the pod, and before it the claims of volumes.
func (s *standIn) makePod(ctx context.Context, o *object) error {
	pod := &corev1.Pod{ObjectMeta: o.Spec.PodTemplate.ObjectMeta, Spec: *o.Spec.PodTemplate.Spec.DeepCopy()}
	pod.Name, pod.OwnerReferences = o.Name, owned(o)
	for _, c := range o.Spec.VolumeClaimTemplates {
		volume := corev1.Volume{Name: c.Name}
		c.Name += "-" + o.Name
		c.OwnerReferences = owned(o)
		if _, err := s.plain.CoreV1().PersistentVolumeClaims(o.Namespace).Create(ctx, &c, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	_, err := s.plain.CoreV1().Pods(o.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func ready(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && len(pod.Status.PodIPs) > 0 &&
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

// tell writes the status of a Sandbox.
func (s *standIn) tell(ctx context.Context, t thing, o *object, pod *corev1.Pod, expired, suspended bool) error {
	r := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "DependenciesNotReady"}
	halted := metav1.Condition{Type: "Suspended", Status: metav1.ConditionFalse, Reason: "NotSuspended"}
	switch {
	case expired:
		r.Reason = "SandboxExpired"
	case suspended && pod == nil:
		r.Reason, halted.Status, halted.Reason = "SandboxSuspended", metav1.ConditionTrue, "PodTerminated"
	case suspended:
		r.Reason, halted.Reason = "SandboxSuspended", "PodTerminating"
	case ready(pod):
		r.Status, r.Reason = metav1.ConditionTrue, "DependenciesReady"
	}
	status := map[string]any{"podIPs": nil, "nodeName": nil}
	changed := meta.SetStatusCondition(&o.Status.Conditions, r)
	changed = meta.SetStatusCondition(&o.Status.Conditions, halted) || changed
	var addresses []string
	if pod != nil {
		for _, ip := range pod.Status.PodIPs {
			addresses = append(addresses, ip.IP)
		}
		status["podIPs"], status["nodeName"] = addresses, pod.Spec.NodeName
	}
	if !changed && slices.Equal(addresses, o.Status.PodIPs) {
		return nil
	}
	status["conditions"] = o.Status.Conditions
	return s.patch(ctx, t, map[string]any{"status": status}, "status")
}

// pool makes and deletes members until there are as many as wanted.
func (s *standIn) pool(ctx context.Context, t thing, o *object) error {
	label := poolLabel + "=" + string(o.UID)
	members, err := s.client(thing{kind: "Sandbox", namespace: t.namespace}).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return err
	}
	there, able := 0, 0
	for i := range members.Items {
		m := read(&members.Items[i])
		switch {
		case m.DeletionTimestamp != nil:
		case there == o.Spec.Replicas:
			err = s.client(thing{kind: "Sandbox", namespace: t.namespace}).Delete(ctx, m.Name, metav1.DeleteOptions{})
		default:
			there++
			if meta.IsStatusConditionTrue(m.Status.Conditions, "Ready") {
				able++
			}
		}
		if err != nil {
			return err
		}
	}
	for ; there < o.Spec.Replicas; there++ {
		if err := s.member(ctx, o); err != nil {
			return err
		}
	}
	return s.patch(ctx, t, map[string]any{"status": map[string]any{
		"replicas": there, "readyReplicas": able, "selector": label, "observedGeneration": o.Generation}}, "status")
}

// member makes a Sandbox of the pool's template.
func (s *standIn) member(ctx context.Context, pool *object) error {
	template, exists, _ := s.informers["SandboxTemplate"].GetStore().GetByKey(pool.Namespace + "/" + pool.Spec.SandboxTemplateRef.Name)
	if !exists {
		return apierrors.NewNotFound(kinds["SandboxTemplate"].GroupResource(), pool.Spec.SandboxTemplateRef.Name)
	}
	box, spec := &unstructured.Unstructured{}, map[string]any{}
	for name, value := range template.(*unstructured.Unstructured).Object["spec"].(map[string]any) {
		if name == "podTemplate" || name == "volumeClaimTemplates" {
			spec[name] = value
		}
	}
	box.SetUnstructuredContent(map[string]any{"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "spec": spec})
	box.SetGenerateName(pool.Name + "-")
	box.SetLabels(map[string]string{poolLabel: string(pool.UID)})
	box.SetOwnerReferences(owned(pool))
	_, err := s.client(thing{kind: "Sandbox", namespace: pool.Namespace}).Create(ctx, box, metav1.CreateOptions{})
	return err
}

// claim tells what becomes of its Sandbox.
func (s *standIn) claim(ctx context.Context, t thing, o *object) error {
	mine, err := s.bind(ctx, o)
	if err != nil {
		return err
	}
	if mine == nil {
		s.queue.AddAfter(t, again)
		return nil
	}
	r := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "SandboxNotReady"}
	if c := meta.FindStatusCondition(mine.Status.Conditions, "Ready"); c != nil {
		r.Status, r.Reason = c.Status, c.Reason
	}
	if !meta.SetStatusCondition(&o.Status.Conditions, r) && o.Status.Sandbox.Name == mine.Name {
		return nil
	}
	return s.patch(ctx, t, map[string]any{"status": map[string]any{
		"conditions": o.Status.Conditions, "sandbox": map[string]any{"name": mine.Name, "podIPs": mine.Status.PodIPs}}}, "status")
}

// bind returns the Sandbox of a claim. If it has none so far, it takes a ready member of its pool.
func (s *standIn) bind(ctx context.Context, o *object) (*object, error) {
	var members []*object
	for _, u := range s.informers["Sandbox"].GetStore().List() {
		box := read(u)
		owner := metav1.GetControllerOf(box)
		if owner == nil || box.Namespace != o.Namespace || box.DeletionTimestamp != nil {
			continue
		}
		by, _ := s.taken.Load(box.UID) // the informer may show the owner of before
		if owner.UID == o.UID || by == o.UID {
			return box, nil
		}
		if owner.Kind == "SandboxWarmPool" && owner.Name == o.Spec.WarmPoolRef.Name && len(box.Status.PodIPs) > 0 &&
			meta.IsStatusConditionTrue(box.Status.Conditions, "Ready") {
			members = append(members, box)
		}
	}
	for _, m := range members {
		if _, lost := s.taken.LoadOrStore(m.UID, o.UID); lost {
			continue
		}
		err := s.patch(ctx, thing{"Sandbox", o.Namespace, m.Name}, map[string]any{"metadata": map[string]any{
			"resourceVersion": m.ResourceVersion, "ownerReferences": owned(o),
			"labels": map[string]any{poolLabel: nil, claimLabel: string(o.UID), "agents.x-k8s.io/launch-type": "warm"}}})
		if err != nil {
			s.taken.Delete(m.UID)
		}
		return m, err
	}
	return nil, nil
}
