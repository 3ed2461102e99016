package plane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"
)

// insecure is for the probes of servers that make their own certificates.
func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a probe on loopback, nothing is believed
}

func get(ctx context.Context, url string) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: insecure()}
	defer client.CloseIdleConnections()
	return getWith(ctx, client, url)
}

func getWith(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err // names the URL
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s", url, resp.Status)
	}
	return nil
}
