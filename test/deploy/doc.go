// Package deploy holds the tests of what deploy/ ships: Helm charts, overlays,
// the cluster's blueprint, alerts and dashboards. It is a module of its own, so
// that Helm is no dependency of Pilotlight.
//
// The charts are rendered with Helm as a library, over a matrix of values
// (testdata/values), and
//
//   - every document is created, as a strict dry run, on a real kube-apiserver
//     with the CustomResourceDefinitions of everything that is used;
//   - what cannot work is refused, with a message that names the value
//     (testdata/refused);
//   - the flags in it are flags of the programs, and the defaults of the values
//     those of the code;
//   - each flag that a user would set has a value;
//   - each overlay, and each file of the blueprint, does what it is for, and
//     edits that break it are noticed;
//   - a real kube-scheduler places pods and allocates devices on nodes that are
//     only said to be there;
//   - each expression of alerts and dashboard names metrics that exist, alerts
//     fire and keep quiet, and the dashboard is pictured (docs/images) from a
//     recorded run;
//   - the text is compared with what was reviewed (testdata/golden; -update
//     writes it anew).
//
// make verify-deploy runs all of it. Without PILOTLIGHT_E2E_BIN the tests that
// need the API server are skipped, and the others take seconds. With
// PILOTLIGHT_DEPLOY_RECORD=1 the run of a pod of the chart is recorded anew.
package deploy
