// Package fetchercmd is the program pilotlight-fetcher without its process:
// flags, environment, wiring, rendering and exit codes. It lives apart from
// main so that tests and the demo run it inside their own process.
package fetchercmd
