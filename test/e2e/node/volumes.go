package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumes makes a pod's volumes and returns their folders by name.
func (p *pod) volumes(ctx context.Context) (map[string]string, error) {
	dirs := map[string]string{}
	for _, v := range p.object.Spec.Volumes {
		dir, err := p.volume(ctx, v)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		dirs[v.Name] = dir
	}
	return dirs, nil
}

func (p *pod) volume(ctx context.Context, v corev1.Volume) (string, error) {
	dir := p.dir("volumes", v.Name)
	files := map[string][]byte{}
	switch {
	case v.HostPath != nil:
		dir = v.HostPath.Path
	case v.PersistentVolumeClaim != nil:
		dir = filepath.Join(p.node.Dir, "claims", p.object.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.ConfigMap != nil:
		m, err := p.node.Client.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return "", err // names the object
		}
		for name, text := range m.Data {
			files[name] = []byte(text)
		}
	case v.Secret != nil:
		s, err := p.node.Client.CoreV1().Secrets(p.object.Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return "", err // names the object
		}
		files = s.Data
	case v.DownwardAPI != nil:
		for _, item := range v.DownwardAPI.Items {
			if item.FieldRef != nil {
				files[item.Path] = []byte(p.field(item.FieldRef.FieldPath))
			}
		}
	case v.EmptyDir == nil:
		return "", fmt.Errorf("of a kind that is not played")
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err // names the folder
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return "", err // names the file
		}
	}
	return dir, nil
}

// field is a value of the downward API.
func (p *pod) field(path string) string {
	meta := p.object.ObjectMeta
	if name, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return meta.Annotations[strings.TrimSuffix(name, "']")]
	}
	if name, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
		return meta.Labels[strings.TrimSuffix(name, "']")]
	}
	switch path {
	case "metadata.name":
		return meta.Name
	case "metadata.namespace":
		return meta.Namespace
	case "metadata.uid":
		return string(meta.UID)
	case "spec.nodeName":
		return p.node.Name
	case "spec.serviceAccountName":
		return p.object.Spec.ServiceAccountName
	case "status.podIP", "status.podIPs":
		return p.ip
	case "status.hostIP":
		return "127.0.0.1"
	}
	return ""
}

// mounts replaces mount paths by folders.
type mounts []mount

type mount struct{ path, dir string }

func newMounts(c *corev1.Container, volumes map[string]string) mounts {
	var m mounts
	for _, v := range c.VolumeMounts {
		m = append(m, mount{strings.TrimSuffix(v.MountPath, "/"), filepath.Join(volumes[v.Name], v.SubPath)})
	}
	slices.SortFunc(m, func(a, b mount) int { return len(b.path) - len(a.path) })
	return m
}

// in replaces every mount path in a text that ends at a slash, a separator or
// the end of the text.
func (m mounts) in(text string) string {
	for i := 0; i < len(text); i++ {
		if i > 0 && text[i-1] != '=' && text[i-1] != ':' && text[i-1] != ',' && text[i-1] != ' ' {
			continue
		}
		for _, one := range m {
			rest, ok := strings.CutPrefix(text[i:], one.path)
			if ok && (rest == "" || strings.ContainsAny(rest[:1], "/:, ")) {
				text = text[:i] + one.dir + rest
				i += len(one.dir) - 1
				break
			}
		}
	}
	return text
}
