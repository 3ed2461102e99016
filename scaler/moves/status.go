package moves

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/webhook"
)

const (
	// statusVersion is the format of an agent's answer that is understood.
	statusVersion = 1

	// maxHistory bounds what is heard of one root; an agent keeps ten.
	maxHistory = 2 * Kept
)

// status is what of an agent's /status is read.
type status struct {
	V     int    `json:"v"`
	Ref   string `json:"ref"`
	Named *struct {
		Version string    `json:"version"`
		At      time.Time `json:"at"`
	} `json:"named"`
	Published *struct {
		Version string    `json:"version"`
		Digest  string    `json:"digest"`
		At      time.Time `json:"at"`
	} `json:"published"`
	History []struct { // newest first
		Version string    `json:"version"`
		Digest  string    `json:"digest"`
		At      time.Time `json:"at"`
	} `json:"history"`
}

var errNoStatus = errors.New("not an agent's status")

// parse reads an agent's answer that was given at sent, by the agent's clock,
// and received at now. hash is what the pod's label says of its reference: an
// agent of another one is not believed.
func parse(body []byte, hash, by string, sent, now time.Time) (ref string, told Seen, err error) {
	var st status
	if err := json.Unmarshal(body, &st); err != nil || st.V != statusVersion {
		return "", Seen{}, fmt.Errorf("%w: want JSON with v: %d", errNoStatus, statusVersion)
	}
	short, _ := strings.CutPrefix(st.Ref, "models:/")
	if !printable(st.Ref, 1, maxRef) || webhook.RefHash(st.Ref) != hash && webhook.RefHash(short) != hash {
		return "", Seen{}, fmt.Errorf("%w: it brings another model than its pod's label says", errNoStatus)
	}
	ours := func(at time.Time) time.Time { return now.Add(at.Sub(sent)).UTC().Truncate(time.Millisecond) }
	if n := st.Named; n != nil {
		m := Move{At: ours(n.At), To: n.Version, By: by}
		if p := st.Published; p != nil && p.Version == n.Version {
			m.Digest = p.Digest
		}
		if m.sane() {
			told.Named = &m
		}
	}
	if p := st.Published; p != nil {
		m := Move{At: ours(p.At), To: p.Version, Digest: p.Digest, By: by}
		if m.sane() {
			told.Published = &m
		}
	}
	history := st.History[:min(len(st.History), maxHistory)]
	for i := range max(0, len(history)-1) {
		h, before := history[i], history[i+1]
		m := Move{At: ours(h.At), From: before.Version, To: h.Version, Digest: h.Digest, By: by}
		if m.sane() && m.From != m.To {
			told.History = append(told.History, m)
		}
	}
	return st.Ref, told, nil
}
