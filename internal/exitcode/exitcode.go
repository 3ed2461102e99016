// Package exitcode names the exit codes that every Pilotlight binary shares,
// so that a script, a pod's termination message and the documentation agree.
package exitcode

// The codes. A new one is appended; a number is never given another meaning.
const (
	OK                  = 0  // done
	Unexpected          = 1  // an error nobody foresaw: report it
	Usage               = 2  // a flag, a file or the configuration is wrong
	PointerBroken       = 3  // the registry pointer does not exist, or leads nowhere usable
	Integrity           = 4  // digest, size or completeness of the model is wrong
	NoSpace             = 5  // the volume cannot hold the version
	RegistryUnreachable = 6  // the registry did not answer
	StoreUnreachable    = 7  // the object store did not answer, or refused
	NotVerified         = 8  // the pointer moved, but no engine has confirmed it
	Conflict            = 9  // somebody else moved the pointer
	DoctorWarning       = 10 // doctor found warnings
	DoctorError         = 11 // doctor found errors
	RestartPod          = 88 // the agent asks for a restart of the pod's containers
)
