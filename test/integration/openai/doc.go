// Package openai runs OpenAI's own Python library against Pilotlight: the real
// pilotlight-activator and pilotlight-scaler, a KEDA stream, and a simulated
// engine (internal/fake/engine) that starts only once KEDA was told to start it.
//
// script.py does what users' programs do (stream, cancel, retry, list, fail) and
// prints what the library made of the answers; the tests compare that, and what
// engine, log and metrics saw of it.
//
// `make integration` builds the environment (hack/venv.sh, requirements.txt) and
// the binaries and names them in PILOTLIGHT_OPENAI, PILOTLIGHT_ACTIVATOR and
// PILOTLIGHT_SCALER; without these everything is skipped. Everything stays on
// loopback.
package openai
