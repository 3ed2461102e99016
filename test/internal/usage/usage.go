// Package usage reads from /proc what one process has used. It needs Linux.
//
// Benches share their machine with what they measure, so that only the process's
// own account tells what the product costs.
package usage

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc: USER_HZ, 100 a second on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond

// CPU is how long a process has computed, in user and system mode, all threads
// together.
func CPU(pid int) (time.Duration, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(name) //nolint:gosec // a number
	if err != nil {
		return 0, err // names the file
	}
	return parseCPU(string(text))
}

// parseCPU reads the 14th and 15th field (man 5 proc_pid_stat). The second, the
// program's name in parentheses, may hold spaces and parentheses itself.
func parseCPU(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const user, system = 14 - 3, 15 - 3 // fields begins with the third
	if len(fields) <= system {
		return 0, fmt.Errorf("reading CPU time: %q has too few fields", stat)
	}
	u, err := strconv.ParseInt(fields[user], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	s, err := strconv.ParseInt(fields[system], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	return time.Duration(u+s) * tick, nil
}

// Memory is what a process has in memory now and has had at most, in MiB.
func Memory(pid int) (now, peak float64, err error) {
	name := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(name) //nolint:gosec // a number
	if err != nil {
		return 0, 0, err // names the file
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(words[1], 64) // the two lines below have a number there
		switch words[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			peak = kib / 1024
		}
	}
	if peak == 0 {
		return 0, 0, fmt.Errorf("%s says nothing of memory", name)
	}
	return now, peak, nil
}
