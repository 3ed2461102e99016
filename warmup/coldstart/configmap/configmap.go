// Package configmap keeps what was learned in the ConfigMaps
// pilotlight-state-0 to pilotlight-state-15 of one namespace.
//
// Their number is fixed, so that a key is always found in the same one; their
// size is bounded: the moves of pointers leave before what was learned, of each
// the entries not written for longest. Each entry is one record
// (coldstart.Encode) under a name made of its key: one that is damaged, edited
// into nonsense, written by a newer release or put under another's name is
// reported and left out, and the next write to its ConfigMap clears it.
//
// Rights needed, in that namespace: get and update on these ConfigMaps, create
// on configmaps.
package configmap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

const (
	// Shards is the number of ConfigMaps. Changing it would lose what was
	// learned.
	Shards = 16

	// MaxBytes bounds one ConfigMap's data, well below the API server's 1 MiB.
	MaxBytes = 768 << 10

	// tries bounds the attempts to win against another writer.
	tries = 5

	prefix = "pilotlight-state-"
)

// Store keeps entries in ConfigMaps of Namespace.
type Store struct {
	Client    kubernetes.Interface
	Namespace string
}

var _ coldstart.Store = Store{}

// Load reads every shard. It fails if one of them cannot be had, with what the
// others hold.
func (s Store) Load(ctx context.Context) (map[coldstart.Key]coldstart.Entry, []error, error) {
	out := map[coldstart.Key]coldstart.Entry{}
	var damaged, errs []error
	for shard := range Shards {
		cm, err := s.Client.CoreV1().ConfigMaps(s.Namespace).Get(ctx, shardName(shard), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("reading configmap %s/%s: %w", s.Namespace, shardName(shard), err))
			if ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				return out, damaged, errors.Join(errs...) // the others will be no different
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(cm.Data)) {
			k, e, err := decode(shard, name, cm.Data[name])
			if err != nil {
				damaged = append(damaged, fmt.Errorf("configmap %s/%s, key %s: %w", s.Namespace, shardName(shard), name, err))
				continue
			}
			out[k] = e
		}
	}
	return out, damaged, errors.Join(errs...)
}

// Save merges entries into their shards. A shard written by somebody else
// meanwhile is read and merged again.
func (s Store) Save(ctx context.Context, entries map[coldstart.Key]coldstart.Entry) error {
	byShard := map[int]map[string]string{}
	var errs []error
	for k, e := range entries {
		body, err := coldstart.Encode(k, e)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		shard := shardOf(k)
		if byShard[shard] == nil {
			byShard[shard] = map[string]string{}
		}
		byShard[shard][entryName(k)] = string(body)
	}
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		if err := s.merge(ctx, shard, byShard[shard]); err != nil {
			errs = append(errs, fmt.Errorf("writing configmap %s/%s: %w", s.Namespace, shardName(shard), err))
		}
	}
	return errors.Join(errs...)
}

// merge writes data into a shard, trying again while others do.
func (s Store) merge(ctx context.Context, shard int, data map[string]string) error {
	var err error
	for range tries {
		err = s.mergeOnce(ctx, shard, data)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return err
}

func (s Store) mergeOnce(ctx context.Context, shard int, data map[string]string) error {
	client := s.Client.CoreV1().ConfigMaps(s.Namespace)
	cm, err := client.Get(ctx, shardName(shard), metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	switch {
	case absent:
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: shardName(shard), Labels: map[string]string{"app.kubernetes.io/part-of": "pilotlight"},
		}}
	case err != nil:
		return err
	}
	merged := map[string]string{}
	for name, body := range cm.Data {
		if _, _, err := decode(shard, name, body); err == nil { // what is damaged is not carried on
			merged[name] = body
		}
	}
	maps.Copy(merged, data)
	coldstart.Trim(merged, MaxBytes)
	cm.Data = merged
	if absent {
		_, err = client.Create(ctx, cm, metav1.CreateOptions{})
	} else {
		_, err = client.Update(ctx, cm, metav1.UpdateOptions{})
	}
	return err
}

// decode reads the record under name in a shard, which must be about what its
// name says.
func decode(shard int, name, body string) (coldstart.Key, coldstart.Entry, error) {
	k, e, err := coldstart.Decode([]byte(body))
	if err == nil && (entryName(k) != name || shardOf(k) != shard) {
		err = fmt.Errorf("%w: it is about %s", coldstart.ErrEntry, k)
	}
	return k, e, err
}

func shardName(n int) string { return prefix + strconv.Itoa(n) }

// shardOf spreads keys by name and namespace, so that the triggers of one
// ScaledObject are together.
func shardOf(k coldstart.Key) int {
	return int(sha256.Sum256([]byte(k.Namespace + "/" + k.Name))[0]) % Shards
}

// entryName is the key in the ConfigMap's data. Names of namespaces hold no
// dot, those of ScaledObjects no underscore. What a ConfigMap would not allow
// (253 letters, digits, '-', '_' and '.' at most) goes by its digest: one such
// key would spoil the write for all of its shard.
func entryName(k coldstart.Key) string {
	name := k.Namespace + "." + k.Name + "_" + k.Trigger
	if len(validation.IsConfigMapKey(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(k.String()))
	return "sha256-" + hex.EncodeToString(sum[:])
}
