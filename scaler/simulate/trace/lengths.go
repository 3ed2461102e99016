package trace

import (
	"math"
	"math/rand/v2"
)

// Lengths are the token counts of requests that are drawn: lognormal, at least
// one token, at most MaxTokens.
type Lengths struct {
	InputMean, InputSD   float64 // tokens; 0 = those of the Azure conversation trace
	OutputMean, OutputSD float64
}

// MaxTokens bounds what is drawn, and what a row may claim.
const MaxTokens = 1 << 20

// The Azure conversation trace (2023): 1,155 prompt tokens with a standard
// deviation of 1,109, and 211 generated tokens with one of 163.
var azureConv = Lengths{InputMean: 1155, InputSD: 1109, OutputMean: 211, OutputSD: 163}

func (l Lengths) orDefault() Lengths {
	if l.InputMean == 0 {
		l.InputMean, l.InputSD = azureConv.InputMean, azureConv.InputSD
	}
	if l.OutputMean == 0 {
		l.OutputMean, l.OutputSD = azureConv.OutputMean, azureConv.OutputSD
	}
	return l
}

// lognormal draws with the given mean and standard deviation.
//
//	sigma^2 = ln(1 + (sd/mean)^2), mu = ln(mean) - sigma^2/2
//	mean 1155, sd 1109: sigma 0.81, median 833
func lognormal(rng *rand.Rand, mean, sd float64) int {
	variance := math.Log1p(sd / mean * sd / mean)
	x := math.Exp(math.Log(mean) - variance/2 + math.Sqrt(variance)*rng.NormFloat64())
	return int(min(max(math.Round(x), 1), MaxTokens))
}

func (l Lengths) draw(rng *rand.Rand) (input, output int) {
	return lognormal(rng, l.InputMean, l.InputSD), lognormal(rng, l.OutputMean, l.OutputSD)
}

// source is the generator for one use of a seed, so that drawing one thing more
// leaves the others as they were.
func source(seed, use uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15*(use+1))) //nolint:gosec // a simulation has to be repeatable
}
