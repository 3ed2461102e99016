package fetcher

// Progress is told what a run does, so that a program can show it. Calls come
// from several goroutines at once and must not block.
type Progress interface {
	// Planned comes once, before the first byte, unless everything is there.
	Planned(Plan)
	// Advanced reports bytes written to disk; a negative number takes back the
	// bytes of an attempt that failed.
	Advanced(n int64)
	// Retried reports an attempt that failed and will be repeated.
	Retried(object string, err error)
}

type noProgress struct{}

func (noProgress) Planned(Plan)          {}
func (noProgress) Advanced(int64)        {}
func (noProgress) Retried(string, error) {}
