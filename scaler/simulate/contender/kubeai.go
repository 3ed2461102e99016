package contender

import (
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// KubeAI are the parameters of substratusai/kubeai's autoscaler.
type KubeAI struct {
	Target float64       // targetRequests
	Window time.Duration // timeWindow
	Tick   time.Duration // interval
	Delay  time.Duration // scaleDownDelaySeconds
}

// DefaultKubeAI is its chart's default, with the target given.
func DefaultKubeAI(target float64) KubeAI {
	return KubeAI{Target: target, Window: 10 * time.Minute, Tick: 10 * time.Second, Delay: 30 * time.Second}
}

// Controller scales on a moving average (internal/modelautoscaler/autoscaler.go,
// internal/modelclient/scale.go): every tick
//
//	wanted = ceil(mean of the requests in flight over the window / target)
//
// Fewer than there are has to be wanted for Delay of ticks in a row. From zero
// the proxy itself asks for one replica, at once. The mean begins with a window
// of zeros.
func (k KubeAI) Controller() simulate.Controller {
	return simulate.Controller{
		Name: "kubeai", Source: "substratusai/kubeai: 10 minute mean, tick 10 s, scale-down delay 30 s",
		New: func() simulate.Policy { return &kubeAI{p: k, ring: make([]float64, max(k.Window/k.Tick, 1))} },
	}
}

type kubeAI struct {
	p     KubeAI
	ring  []float64
	at    int
	tick  time.Time // the next one
	lower int       // ticks in a row that wanted fewer
}

func (k *kubeAI) Name() string { return "kubeai" }

func (k *kubeAI) Observe(v simulate.View) simulate.Proposal {
	n := v.Replicas
	if v.Now.Before(k.tick) {
		if n == 0 && v.Held > 0 {
			return direct(1, "from-zero")
		}
		return direct(n, "between-ticks")
	}
	k.tick = v.Now.Add(k.p.Tick)
	k.ring[k.at%len(k.ring)] = concurrency(v)
	k.at++
	wanted := ceil(mean(k.ring) / k.p.Target)
	if wanted >= n {
		k.lower = 0
		return direct(wanted, "mean")
	}
	if k.lower++; k.lower <= int(k.p.Delay/k.p.Tick) {
		return direct(n, "scale-down-delay")
	}
	k.lower = 0
	return direct(wanted, "mean")
}
