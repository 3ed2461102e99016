package mlflow

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

const (
	deliveryAttempts = 4 // one and MLflow's three retries
	deliveryTimeout  = 30 * time.Second
	deliveryBackoff  = time.Second
	maxDeliveryWait  = time.Minute
)

// A delivery is one request to one webhook.
type delivery struct {
	url, secret, id string
	at              int64 // Unix seconds
	body            string
}

// courier sends deliveries in the background, in no order.
type courier struct {
	client  *http.Client // nil sends nothing
	backoff time.Duration
	spawn   func(func(context.Context))
	wait    func()
	close   func()
}

func newCourier(opts Options) *courier {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	c := &courier{client: opts.Deliver, backoff: opts.Backoff}
	if c.backoff <= 0 {
		c.backoff = deliveryBackoff
	}
	c.spawn = func(work func(context.Context)) { group.Go(func() { work(ctx) }) }
	c.wait = group.Wait
	c.close = func() { cancel(); group.Wait() }
	return c
}

// send delivers in the background. What fails in the end is lost, as in MLflow.
func (c *courier) send(d delivery) {
	c.spawn(func(ctx context.Context) { c.try(ctx, d) })
}

// outcome is the answer to a webhook's test.
type outcome struct {
	Success bool   `json:"success"`
	Status  int    `json:"response_status,omitempty"`
	Body    string `json:"response_body,omitempty"`
	Error   string `json:"error_message,omitempty"`
}

// errAgain marks an answer after which the delivery is repeated: 429 and 5xx.
var errAgain = errors.New("the receiver asks for patience")

// try delivers, repeating as MLflow does.
func (c *courier) try(ctx context.Context, d delivery) outcome {
	if c.client == nil {
		return outcome{Error: "Failed to test webhook: this server delivers nothing"}
	}
	var out outcome
	policy := retry.Policy{Base: c.backoff, Max: maxDeliveryWait, Attempts: deliveryAttempts, Retryable: func(error) bool { return true }}
	err := retry.Do(ctx, policy, func(ctx context.Context, _ int) error {
		var err error
		out, err = c.once(ctx, d)
		return err
	})
	if err != nil && !errors.Is(err, errAgain) {
		return outcome{Error: fmt.Sprintf("Failed to test webhook: %v", err)}
	}
	return out
}

func (c *courier) once(ctx context.Context, d delivery) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, strings.NewReader(d.body))
	if err != nil {
		return outcome{}, fmt.Errorf("delivering to %s: %w", d.url, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-MLflow-Delivery-Id", d.id)
	req.Header.Set("X-MLflow-Timestamp", strconv.FormatInt(d.at, 10))
	if d.secret != "" {
		req.Header.Set("X-MLflow-Signature", Sign(d.secret, d.id, d.at, d.body))
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return outcome{}, fmt.Errorf("delivering to %s: %w", d.url, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	err = errors.Join(err, resp.Body.Close())
	if err != nil {
		return outcome{}, fmt.Errorf("delivering to %s: %w", d.url, err)
	}
	out := outcome{Success: resp.StatusCode < 400, Status: resp.StatusCode, Body: string(body)}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return out, errAgain
	}
	return out, nil
}

// Sign returns the signature header of a delivery, by which a receiver knows that
// it comes from a server with the secret: "v1," and the base64 of
// HMAC-SHA256(secret, id "." Unix seconds "." body).
func Sign(secret, id string, at int64, body string) string {
	h := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(h, "%s.%d.%s", id, at, body) // a hash never fails
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// newUUID returns a random UUID (version 4).
func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// pairs is an object whose fields keep their order. Values are texts, nil, and
// pairs.
type pairs []pair

type pair struct {
	key   string
	value any
}

// orNull is a text that is null when nobody gave it.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// python writes the object as Python's json.dumps does: a blank after each colon
// and comma, and nothing but ASCII. Receivers verify these very bytes.
func (p pairs) python() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, field := range p {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(ascii(field.key) + ": ")
		switch v := field.value.(type) {
		case string:
			b.WriteString(ascii(v))
		case pairs:
			b.WriteString(v.python())
		default:
			b.WriteString("null")
		}
	}
	return b.String() + "}"
}

func ascii(text string) string {
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string in memory
	var b strings.Builder
	for _, r := range strings.TrimSuffix(quoted.String(), "\n") {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
