package agentwatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pilotlight-dev/pilotlight/internal/workload/kube"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// What pods of a model carry.
const (
	// RefLabel holds RefHash of the reference: a label cannot hold the reference
	// itself.
	RefLabel = "pilotlight.dev/ref-hash"
	// RefAnnotation holds the reference, in any form that is understood.
	RefAnnotation = "pilotlight.dev/ref"
	// RoleLabel with the value RoleWriter marks a pod that has no engine.
	RoleLabel  = "pilotlight.dev/role"
	RoleWriter = "writer"
)

// hashDigits of the SHA-256, in hex, are in the label: 40 bits tell the models
// of one cluster apart, and the annotation has the last word.
const hashDigits = 10

// RefHash returns the first ten hex digits of the SHA-256 of the reference as
// Ref.String writes it.
func RefHash(ref registry.Ref) string { return hash(ref.String()) }

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:hashDigits]
}

// selector finds the pods of ref by their label. Whoever labels pods by hand or
// in a template may have hashed the short form, llama@champion.
func selector(ref registry.Ref) string {
	if ref == (registry.Ref{}) {
		return RefLabel
	}
	text := ref.String()
	if short, ok := strings.CutPrefix(text, "models:/"); ok {
		return fmt.Sprintf("%s in (%s,%s)", RefLabel, hash(text), hash(short))
	}
	return RefLabel + "=" + hash(text)
}

// Names reports whether a pod's annotation means the reference; without an
// annotation the label has to do.
func Names(annotation string, ref registry.Ref) bool {
	if annotation == "" {
		return true
	}
	named, err := registry.ParseModel(annotation)
	return err == nil && named == ref
}

// Cluster finds pods by their labels and asks through the API server. It needs
// list on pods and get on pods/proxy; to nudge, create on pods/proxy.
type Cluster struct {
	Client kubernetes.Interface
	// Namespace to look in; "" means all.
	Namespace string
	// Ref whose pods are looked for; the zero Ref means those of every model.
	Ref registry.Ref
	// Port of the agents; 0 means AgentPort.
	Port int
	// Proxy posts through the API server, for Nudge; nil cannot.
	Proxy rest.Interface
}

func (c Cluster) port() int { return cmp.Or(c.Port, AgentPort) }

// list finds the pods; nobody is asked.
func (c Cluster) list(ctx context.Context) ([]Pod, error) {
	listed, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector(c.Ref)})
	if err != nil {
		return nil, fmt.Errorf("listing the pods with the label %s: %w", selector(c.Ref), err)
	}
	var pods []Pod
	for i := range listed.Items {
		p := &listed.Items[i]
		if c.Ref == (registry.Ref{}) || Names(p.Annotations[RefAnnotation], c.Ref) {
			pods = append(pods, describe(p))
		}
	}
	return pods, nil
}

// Pods implements Source.
func (c Cluster) Pods(ctx context.Context) ([]Pod, error) {
	pods, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	askAll(ctx, pods, c.Ref, func(ctx context.Context, p Pod) (io.ReadCloser, error) {
		answer := c.Client.CoreV1().Pods(p.Namespace).ProxyGet("http", p.Name, strconv.Itoa(c.port()), "status", nil)
		if answer == nil {
			return nil, errors.New("the API server has no pod proxy")
		}
		return answer.Stream(ctx)
	})
	return pods, ctx.Err()
}

// notStarted is why a pod without an address is not asked.
const notStarted = "it has not started"

func describe(p *corev1.Pod) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, Ref: p.Annotations[RefAnnotation],
		Terminating: p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Writer:      p.Labels[RoleLabel] == RoleWriter,
		Failure:     kube.Failure(p),
	}
	if !out.Terminating && p.Status.PodIP == "" && p.Status.Phase == corev1.PodPending {
		out.Unknown = notStarted // nobody would answer
	}
	return out
}
