package transfer

import (
	"os"
	"strconv"
	"strings"
)

// cgroupHeadroom is what our memory cgroup has left, in bytes; 0 when there is
// no limit or none can be read. Inside a container the files of version 2 are
// those of the container itself.
func cgroupHeadroom() int64 {
	for _, files := range [][2]string{
		{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
		{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
	} {
		limit, ok := readNumber(files[0])
		if !ok || limit > 1<<50 { // version 1 writes "no limit" as a huge number
			continue
		}
		used, _ := readNumber(files[1])
		// What is used includes pages that can be dropped; the limit's quarter
		// is there at any rate.
		return max(limit-used, limit/4)
	}
	return 0
}

func readNumber(name string) (int64, bool) {
	data, err := os.ReadFile(name) //nolint:gosec // fixed names of the kernel
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil && n > 0
}
