package transfer

import (
	"os"
	"strconv"
	"strings"
)

// readTicks reads how much time the machine's processors have spent idle and
// altogether, in clock ticks; zeros if that cannot be known.
func readTicks() (idle, total int64) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	return parseTicks(string(data))
}

// parseTicks reads the first line of /proc/stat (proc_stat(5)): "cpu user nice
// system idle iowait irq softirq steal guest guest_nice"; guests are counted in
// user already.
func parseTicks(stat string) (idle, total int64) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[0] != "cpu" {
		return 0, 0
	}
	const idleField, waitField, lastField = 4, 5, 8
	for i := 1; i < len(fields) && i <= lastField; i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || n < 0 {
			return 0, 0
		}
		total += n
		if i == idleField || i == waitField {
			idle += n
		}
	}
	return idle, total
}
