package prime

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory is what there is, in bytes.
type Memory struct {
	Available int64 // MemAvailable of the machine; it counts droppable pages
	// Limit and Used are those of our memory cgroup; Limit 0 means none.
	Limit, Used int64
}

// DefaultReserve is left alone by the guard: what engine and kernel may need
// next, by rule of thumb.
const DefaultReserve = 1 << 30

// Budget is how many bytes may be read into the page cache: the smaller of
// machine and cgroup, less the reserve, never negative.
//
//	available 20 GiB, limit 16 GiB, used 4 GiB, reserve 1 GiB -> 11 GiB
//	available 20 GiB, no limit, reserve 1 GiB                 -> 19 GiB
func Budget(m Memory, reserve int64) int64 {
	left := m.Available
	if m.Limit > 0 {
		left = min(left, m.Limit-m.Used)
	}
	return max(left-reserve, 0)
}

// ReadMemory looks at this machine, below root ("/" but in tests). Inside a
// container the files of cgroup version 2 are those of the container itself.
func ReadMemory(root string) (Memory, error) {
	data, err := os.ReadFile(filepath.Join(root, "proc/meminfo")) //nolint:gosec // a fixed name of the kernel
	if err != nil {
		return Memory{}, fmt.Errorf("reading what memory there is: %w", err)
	}
	available, ok := memAvailable(string(data))
	if !ok {
		return Memory{}, fmt.Errorf("reading what memory there is: %s has no MemAvailable", filepath.Join(root, "proc/meminfo"))
	}
	m := Memory{Available: available}
	for _, files := range [][2]string{
		{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"},
		{"sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"},
	} {
		limit, ok := readNumber(filepath.Join(root, files[0]))
		if !ok || limit > 1<<50 { // "max", or the huge number by which version 1 says so
			continue
		}
		used, ok := readNumber(filepath.Join(root, files[1]))
		if !ok {
			used = limit // unknown is not zero
		}
		m.Limit, m.Used = limit, used
		break
	}
	return m, nil
}

// memAvailable reads the line "MemAvailable:  123 kB".
func memAvailable(meminfo string) (int64, bool) {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemAvailable:" && fields[2] == "kB" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err == nil && n >= 0 && n < 1<<50
		}
	}
	return 0, false
}

func readNumber(name string) (int64, bool) {
	data, err := os.ReadFile(name) //nolint:gosec // a fixed name of the kernel
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil && n >= 0
}
