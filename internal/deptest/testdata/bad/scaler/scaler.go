// Package scaler may import coldstart and nothing else of these.
package scaler

import (
	_ "example.com/bad/fetcher"
	_ "example.com/bad/internal/fake"
	_ "example.com/bad/warmup/coldstart"
)
