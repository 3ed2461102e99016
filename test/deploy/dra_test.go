package deploy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/cel"
)

// devices are published for a node, as NVIDIA's driver does.
func (p *pool) devices(node string, devices map[string]cel.Device) {
	p.t.Helper()
	name := p.name + "-" + node
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.nvidia.com", NodeName: &name,
			Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for _, id := range sortedKeys(devices) {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: id, Attributes: devices[id].Attributes, Capacity: devices[id].Capacity})
	}
	_, err := p.Client.ResourceV1().ResourceSlices().Create(p.t.Context(), slice, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// class makes a DeviceClass under a name of this test's, and returns it.
func (p *pool) class(name, expression string) string {
	p.t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: p.name + "-" + name}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	if expression == "" {
		var ours resourcev1.DeviceClass
		require.NoError(p.t, runtime.DefaultUnstructuredConverter.FromUnstructured(document(p.t, "DeviceClass", name).Object.Object, &ours))
		class.Spec = ours.Spec
	}
	_, err := p.Client.ResourceV1().DeviceClasses().Create(p.t.Context(), class, metav1.CreateOptions{})
	require.NoError(p.t, err)
	return class.Name
}

// model deploys a replica of the chart with an overlay's values, whose classes
// are this test's.
func (p *pool) model(name, overlay string, change func(claim *resourcev1.ResourceClaimTemplate)) {
	p.t.Helper()
	for _, r := range renders(p.t) {
		if r.name != "vllm-model/overlay-"+overlay {
			continue
		}
		text := strings.NewReplacer("llama-gpu", name+"-gpu", "name: llama\n", "name: "+name+"\n").Replace(Text(r.docs))
		docs, err := Split(overlay, text)
		require.NoError(p.t, err)
		for _, d := range docs {
			if d.Object.GetKind() != "ResourceClaimTemplate" {
				continue
			}
			var claim resourcev1.ResourceClaimTemplate
			require.NoError(p.t, runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &claim))
			claim.Namespace = p.name
			change(&claim)
			_, err := p.Client.ResourceV1().ResourceClaimTemplates(p.name).Create(p.t.Context(), &claim, metav1.CreateOptions{})
			require.NoError(p.t, err)
		}
		p.deploy(docs, 1)
		return
	}
	p.t.Fatalf("no overlay %s", overlay)
}

// allocated waits until a claim of a pod whose name begins so is satisfied, and
// returns the devices.
func (p *pool) allocated(prefix string) (devices []string) {
	p.t.Helper()
	p.placed(prefix, 1)
	require.Eventually(p.t, func() bool {
		claims, err := p.Client.ResourceV1().ResourceClaims(p.name).List(p.t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		devices = nil
		for _, c := range claims.Items {
			if strings.HasPrefix(c.Name, prefix) && c.Status.Allocation != nil {
				for _, r := range c.Status.Allocation.Devices.Results {
					devices = append(devices, r.Device)
				}
			}
		}
		return len(devices) > 0
	}, time.Minute, 100*time.Millisecond, prefix)
	return devices
}

// The overlays and classes of dynamic resource allocation, as the scheduler
// allocates for them: two large GPUs, the first of what there is, a slice under
// the name of an extended resource, and the tutorial's expression, which ends
// the allocation.
func TestTheSchedulerAllocatesDevices(t *testing.T) {
	t.Parallel()
	p := newPool(t, "devices")
	p.node("large", "", nil, gpuTaint)
	p.devices("large", map[string]cel.Device{"h100-0": device("gpu", "", "81559Mi"), "h100-1": device("gpu", "", "81559Mi")})
	p.node("cut", "", nil, gpuTaint)
	p.devices("cut", map[string]cel.Device{
		"l4": device("gpu", "", "23034Mi"), "mig-0": device("mig", "3g.40gb", "40448Mi"), "mig-1": device("mig", "3g.40gb", "40448Mi"), "mig-2": device("mig", "1g.10gb", "9856Mi"),
	})
	large := p.class("gpu-40g", "")
	mig := p.class("mig", `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"`)

	p.model("two", "dra", func(c *resourcev1.ResourceClaimTemplate) {
		require.Equal(t, "gpu-40g", c.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName)
		c.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName = large
	})
	require.ElementsMatch(t, []string{"h100-0", "h100-1"}, p.allocated("two"))

	p.model("first", "dra-first-available", func(c *resourcev1.ResourceClaimTemplate) {
		first := c.Spec.Spec.Devices.Requests[0].FirstAvailable
		require.Equal(t, []string{"gpu-40g", "mig.nvidia.com"}, []string{first[0].DeviceClassName, first[1].DeviceClassName})
		first[0].DeviceClassName, first[1].DeviceClassName = large, mig
	})
	require.Contains(t, []string{"mig-0", "mig-1"}, p.allocated("first")[0], "no whole GPU is left")

	p.class("mig-3g-40gb", "") // serves nvidia.com/mig-3g.40gb
	p.model("extended", "dra-extended-resource", nil)
	require.Equal(t, map[string]int{"cut": 1}, p.placed("extended", 1))
	require.NotNil(t, p.pods("extended")[0].Status.ExtendedResourceClaimStatus, "the limit was served by a device")
	p.scaled(t, p.name, "extended", 2)
	require.Contains(t, p.waits("extended"), "cannot allocate all claims", "both slices are taken")

	naive := p.class("naive", `device.driver == "gpu.nvidia.com" && device.attributes["memory"].quantity >= "40Gi"`)
	p.model("naive", "dra", func(c *resourcev1.ResourceClaimTemplate) {
		c.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName = naive
	})
	require.Eventually(t, func() bool { return strings.Contains(p.why("naive"), "no such key") }, time.Minute, 100*time.Millisecond, "%s", p.why("naive"))
	require.Empty(t, p.pods("naive")[0].Spec.NodeName)
}
