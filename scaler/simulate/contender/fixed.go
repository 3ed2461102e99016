package contender

import (
	"fmt"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// Fixed is n replicas all the time, Ready from the beginning.
func Fixed(n int) simulate.Controller {
	name := fmt.Sprintf("fixed %d", n)
	return simulate.Controller{
		Name: name, Source: "no autoscaler", Warm: n,
		New: stateless(name, func(simulate.View) simulate.Proposal { return direct(n, "fixed") }),
	}
}
