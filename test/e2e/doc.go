// Package e2e plays whole scenarios on real KEDA, the real HPA and Pilotlight's
// own binaries: a control plane of package plane, a node of package node, and
// simulated engines behind real pods.
//
//	make e2e                       all scenarios, side by side, a namespace each
//	make e2e E2E_RUN=TestPush      some of them
//
// It needs binaries (make e2e-tools builds them once for each version), and
// neither root nor a container engine. Without PILOTLIGHT_E2E_BIN the tests skip.
//
// Scaler and activator have exactly the rights that the chart gives them, and a
// scenario fails if they ask for more. Which scenario proves what KEDA needs is a
// table in docs/reference/scaler.md.
//
// A scenario that fails prints what there was at its end and the last lines that
// everybody wrote; the whole logs are in build/e2e/logs.
//
// Every scenario leaves a timeline in build/e2e: what was wanted, what there was,
// what waited, and what KEDA and the HPA made of it; and what drove it, so that
// the simulator plays it again (package replay). How far the two are apart is in
// the log and in the picture, and make e2e-report puts all of them on one page.
package e2e
