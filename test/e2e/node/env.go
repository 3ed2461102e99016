package node

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment is what a container's processes see: PATH and what is declared.
func (c *container) environment(ctx context.Context, m mounts) (list []string, vars map[string]string, err error) {
	vars = map[string]string{}
	list = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.pod.dir("home"), "HOSTNAME=" + c.pod.object.Name, "POD_IP=" + c.pod.ip}, c.pod.node.Env...)
	for _, e := range c.spec.Env {
		value, err := c.value(ctx, e)
		if err != nil {
			return nil, nil, fmt.Errorf("variable %s: %w", e.Name, err)
		}
		value = m.in(expand(value, vars))
		vars[e.Name] = value
		list = append(list, e.Name+"="+value)
	}
	return list, vars, nil
}

func (c *container) value(ctx context.Context, e corev1.EnvVar) (string, error) {
	from := e.ValueFrom
	if from == nil {
		return e.Value, nil
	}
	core, ns := c.pod.node.Client.CoreV1(), c.pod.object.Namespace
	switch {
	case from.FieldRef != nil:
		return c.pod.field(from.FieldRef.FieldPath), nil
	case from.SecretKeyRef != nil:
		s, err := core.Secrets(ns).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err // names the object
		}
		return string(s.Data[from.SecretKeyRef.Key]), nil
	case from.ConfigMapKeyRef != nil:
		m, err := core.ConfigMaps(ns).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err // as above
		}
		return m.Data[from.ConfigMapKeyRef.Key], nil
	}
	return "", nil // resources: nobody limits a process here
}

// expand replaces $(NAME) by variables declared earlier.
func expand(text string, vars map[string]string) string {
	for name, value := range vars {
		text = strings.ReplaceAll(text, "$("+name+")", value)
	}
	return text
}
