// Package demandpb is the protocol by which activators tell the scaler how
// many requests they hold and have in flight, and by which the scaler tells
// them how the targets are doing. Generated from demand.proto by
// `make generate`.
package demandpb
