package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// imageFailures and crashFailures are the waiting reasons of a container that
// the kubelet keeps retrying without success.
var (
	imageFailures = []string{"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
	crashFailures = []string{"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)

// Failure says why a pod that is not Ready does not get there, as far as the
// API server shows it; FailureNone where nothing has failed.
func Failure(p *corev1.Pod) workload.Failure { return convert(p).Failure }

// failure says why a pod does not get ready, and what is known about it.
func failure(p *corev1.Pod) (workload.Failure, string) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return workload.FailureUnschedulable, oneLine(c.Message)
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if f, detail := stuck(c); f != workload.FailureNone {
			return f, detail
		}
	}
	return workload.FailureNone, ""
}

// stuck says why a container does not come up. One that has just ended is told
// by what the fetcher left behind, if trying again cannot mend that: the kubelet
// calls it a crash loop only after a while.
func stuck(c corev1.ContainerStatus) (workload.Failure, string) {
	if ended := c.State.Terminated; ended != nil && ended.ExitCode != 0 {
		if f, detail, code := fetcherSaid(ended); slices.Contains(lastingCodes, code) {
			return f, detail
		}
	}
	waiting := c.State.Waiting
	switch {
	case waiting == nil:
		return workload.FailureNone, ""
	case slices.Contains(imageFailures, waiting.Reason):
		return workload.FailureImage, oneLine(c.Name + ": " + waiting.Reason + ": " + waiting.Message)
	case !slices.Contains(crashFailures, waiting.Reason):
		return workload.FailureNone, ""
	}
	last := c.LastTerminationState.Terminated
	if last == nil {
		return workload.FailureCrash, oneLine(c.Name + ": " + waiting.Reason + ": " + waiting.Message)
	}
	switch f, detail, code := fetcherSaid(last); {
	case code == exitcode.RestartPod:
		return workload.FailureNone, "" // it is started anew because it asked for that
	case f != workload.FailureNone:
		return f, detail
	}
	return workload.FailureCrash, oneLine(fmt.Sprintf("%s: exit code %d %s", c.Name, last.ExitCode, last.Reason))
}

// lastingCodes are the fetcher's exit codes of what is the same the next time. The
// others (somebody was in the way, a volume that hiccuped, a store that is away)
// may be gone when the kubelet tries again, which it does at once.
var lastingCodes = []int{exitcode.Usage, exitcode.PointerBroken, exitcode.Integrity, exitcode.NoSpace}

// fetcherSaid tells the fetcher's failures, which it writes to its termination
// message, from anybody else's, whose code is exitcode.OK.
func fetcherSaid(ended *corev1.ContainerStateTerminated) (workload.Failure, string, int) {
	var message struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
		Ref    string `json:"ref"`
	}
	if json.Unmarshal([]byte(ended.Message), &message) != nil || message.Ref == "" {
		return workload.FailureNone, "", exitcode.OK
	}
	detail := oneLine(message.Ref + ": " + message.Reason)
	switch message.Code {
	case exitcode.PointerBroken:
		return workload.FailurePointer, detail, message.Code
	case exitcode.Integrity:
		return workload.FailureIntegrity, detail, message.Code
	case exitcode.NoSpace:
		return workload.FailureNoSpace, detail, message.Code
	case exitcode.RegistryUnreachable, exitcode.StoreUnreachable:
		return workload.FailureStore, detail, message.Code
	}
	return workload.FailureCrash, detail, message.Code
}

// oneLine makes a message fit for a log line and an event.
func oneLine(s string) string {
	const limit = 300
	s = strings.Trim(strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " "), ": ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}
