package fetchercmd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
)

// transferFlags say how to download; they are the same for every command that
// does.
type transferFlags struct {
	connections       int
	memory, bandwidth byteCount
	sizeLimit         byteCount
	durability        string
	etags             bool
}

func (t *transferFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&t.connections, "connections", fetcher.MaxConnections, "most requests at once; how many of them help is found out under way")
	f.Var(&t.memory, "memory", "what buffers and sockets may take, such as 256Mi (default half of what the container's limit leaves, at most 1Gi)")
	f.Var(&t.bandwidth, "bandwidth", "most bytes per second, such as 100M (default no limit)")
	f.Var(&t.sizeLimit, "size-limit", "sizeLimit of the emptyDir that holds --root, such as 200Gi, over which the kubelet evicts the pod (default only the file system's)")
	f.StringVar(&t.durability, "durability", string(volume.Auto), "auto, ephemeral (the volume goes with the pod: no fsync, warm pages) or durable; auto looks at the mount")
	f.BoolVar(&t.etags, "multipart-etags", false, "prove files that the store gives no checksum of by the ETag of their upload in parts: they are read once more")
}

func (t *transferFlags) apply(opts *fetcher.Options) error {
	if t.connections < 1 || t.connections > fetcher.MaxConnections {
		return fmt.Errorf("%w: --connections %d: want 1 to %d", fetcher.ErrUsage, t.connections, fetcher.MaxConnections)
	}
	durability, err := volume.ParseDurability(t.durability)
	if err != nil {
		return fmt.Errorf("%w: --durability: %w", fetcher.ErrUsage, err)
	}
	opts.ETags = t.etags
	opts.Connections, opts.Durability = t.connections, durability
	opts.Memory, opts.Bandwidth = int64(t.memory), int64(t.bandwidth)
	opts.SizeLimit = int64(t.sizeLimit)
	return nil
}

// byteCount is a flag's number of bytes, with the suffixes of Kubernetes.
type byteCount int64

var units = []struct {
	suffix string
	factor int64
}{
	{"Ki", 1 << 10},
	{"Mi", 1 << 20},
	{"Gi", 1 << 30},
	{"Ti", 1 << 40},
	{"k", 1e3},
	{"M", 1e6},
	{"G", 1e9},
	{"T", 1e12},
	{"", 1},
}

// String writes the number without a suffix.
func (b *byteCount) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type names the value in the help.
func (b *byteCount) Type() string { return "bytes" }

// Set reads a flag.
func (b *byteCount) Set(text string) error {
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.factor {
			break
		}
		*b = byteCount(n * u.factor)
		return nil
	}
	return fmt.Errorf("%q: want a number of bytes, such as 256Mi or 100M", text)
}

// transferred adds to the last line what the download was like, and what it
// waited for.
func transferred(res fetcher.Result) []any {
	t := res.Transfer
	if t.Bottleneck == "" {
		return nil
	}
	return []any{
		"linked_bytes", res.Linked, "resumed_bytes", t.Resumed, "throttled", t.Throttled,
		"connections", t.Connections, "bottleneck", string(t.Bottleneck), "evidence", t.Why,
	}
}
