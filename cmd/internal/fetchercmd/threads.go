package fetchercmd

import (
	"os"
	"runtime"
	"sync"
)

// Threads sets how many threads run Go code at once in this process: as many as
// there are processors while there is work for them, one while there is not. An
// agent sleeps nearly always, and each of its polls is a few goroutines that hand
// on to each other: with one thread none has to be woken for that, which saves a
// third of a poll's CPU. A number in $GOMAXPROCS is left as it is.
func Threads(many bool) {
	switch {
	case os.Getenv("GOMAXPROCS") != "":
	case many:
		runtime.SetDefaultGOMAXPROCS()
	default:
		runtime.GOMAXPROCS(1)
	}
}

// effort tells Threads when there is work: from the beginning until rest is
// called first, and within work.
type effort struct {
	threads func(many bool) // nil: nobody is told

	mu     sync.Mutex
	began  bool // rest has been called
	busy   int
	single bool
}

// rest says that the beginning is over.
func (e *effort) rest() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.began = true
	e.tell()
}

// work runs do, for which there should be many threads.
func (e *effort) work(do func()) {
	e.add(1)
	defer e.add(-1)
	do()
}

func (e *effort) add(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy += n
	e.tell()
}

// tell is called with the lock held, and calls with it held: what is told last
// is so.
func (e *effort) tell() {
	single := e.began && e.busy == 0
	if e.threads == nil || single == e.single {
		return
	}
	e.single = single
	e.threads(!single)
}
