// Package kedaconformance checks pilotlight-scaler against what KEDA needs of an
// external scaler, from outside: the program itself, asked over gRPC as KEDA
// asks, with engines and activators of the tests' own.
//
// There are 26 checks, numbered as in docs/reference/scaler.md. Those that a
// client alone can prove are here, TestConformance/NN_...; those that need KEDA,
// the HPA or the API server are scenarios of package test/e2e, which the same
// table names.
package kedaconformance
