package pointercmd

// ErrNoCluster is what a Deps.Cluster says when none is configured.
var ErrNoCluster = errNoCluster

// OpenCluster is how the command line connects.
var OpenCluster = openCluster
