package volume

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

const mounts = `24 1 253:0 / / rw,relatime - ext4 /dev/vda rw
30 24 0:5 / /dev/shm rw - tmpfs tmpfs rw
100 24 253:0 /var/lib/kubelet/pods/4f/volumes/kubernetes.io~empty-dir/models /models rw,relatime - ext4 /dev/vda rw
101 24 0:44 / /mem rw - tmpfs tmpfs rw
102 24 0:45 / /shared\040folder rw master:3 - nfs4 server:/export rw
103 24 259:1 / /pvc rw - xfs /dev/nvme1n1 rw
104 24 0:46 / /efs rw - nfs4 127.0.0.1:/ rw
105 103 0:47 / /pvc/deep rw - fuse.s3fs s3fs rw
106 24 0:48 / /layer rw - overlay overlay rw
garbage
`

func TestDurabilityFollowsTheMount(t *testing.T) {
	tests := map[string]struct {
		dir     string
		want    Durability
		network bool
		how     string
		reason  string
	}{
		"EmptyDir":       {"/models/llama", Ephemeral, false, "buffered", "goes with the pod; the next reader is on this node"},
		"MemoryEmptyDir": {"/mem", Ephemeral, false, "buffered", "memory has nothing to sync"},
		"NFS":            {"/shared folder/x", Durable, true, "bounded", "dirty pages of NFS have had pods killed"},
		"PVC":            {"/pvc/llama", Durable, false, "direct", "outlives the pod"},
		"DeepestMount":   {"/pvc/deep/x", Durable, true, "bounded", "the inner mount holds the path"},
		"NotAPrefix":     {"/pvcother", Durable, false, "direct", "/pvc is no parent of /pvcother"},
		"ContainerLayer": {"/layer/x", Ephemeral, false, "buffered", "goes with the container"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := chooseFrom(mounts, tc.dir)
			require.Equal(t, tc.want, got.Durability, tc.reason)
			require.Equal(t, tc.network, got.Network)
			require.Equal(t, tc.how, got.How().String())
			require.NotEmpty(t, got.Why)
		})
	}
	require.Equal(t, Durable, chooseFrom("", "/x").Durability, "unknown is taken to be durable")
}

func TestAskedDurabilityIsObeyed(t *testing.T) {
	for _, want := range []Durability{Ephemeral, Durable} {
		require.Equal(t, want, Choose(t.TempDir(), want).Durability)
	}
	require.NotEqual(t, Auto, Choose(filepath.Join(t.TempDir(), "not", "yet"), Auto).Durability)
}

func TestParseDurability(t *testing.T) {
	for text, want := range map[string]Durability{"": Auto, "auto": Auto, "ephemeral": Ephemeral, "durable": Durable} {
		got, err := ParseDurability(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := ParseDurability("forever")
	require.ErrorIs(t, err, ErrDurability)
	require.ErrorContains(t, err, "want auto, ephemeral or durable")
}

// aligned returns a buffer that direct writes can take.
func aligned(n int) []byte {
	b := make([]byte, n+2*Align)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (Align - 1) //nolint:gosec // an address is needed
	return b[skip : skip+n]
}

func TestEveryWayOfWritingGivesTheSameFile(t *testing.T) {
	ways := map[string]How{
		"Direct": {Direct: true, Bounded: true}, "Bounded": {Bounded: true}, "Dropped": {Bounded: true, Drop: true}, "Buffered": {},
	}
	const piece = 64 << 10
	for name, how := range ways {
		for _, size := range []int64{0, 1, Align, piece - 1, piece, 3*piece + 5} {
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				root, err := os.OpenRoot(dir)
				require.NoError(t, err)
				defer func() { require.NoError(t, root.Close()) }()
				want := bytes.Repeat([]byte("pilotlight "), int(size)/11+1)[:size]
				f, err := Create(root, "weights", size, how, false)
				require.NoError(t, err)
				var wg sync.WaitGroup
				for off := int64(0); off < size; off += piece {
					wg.Go(func() {
						buf := aligned(piece)
						n := copy(buf, want[off:])
						_, err := f.WriteAt(buf[:n], off)
						require.NoError(t, err)
					})
				}
				wg.Wait()
				back := make([]byte, size+10)
				n, _ := f.ReadAt(back, 0)
				require.Equal(t, want, back[:n], "padding is never read back")
				require.NoError(t, f.Finish())
				require.NoError(t, Sync(root, "weights"))
				got, err := os.ReadFile(filepath.Join(dir, "weights")) //nolint:gosec // a file of this test
				require.NoError(t, err)
				require.Equal(t, want, got)
				info, err := os.Stat(filepath.Join(dir, "weights"))
				require.NoError(t, err)
				require.EqualValues(t, 0o444, info.Mode().Perm())
			})
		}
	}
}

func TestAnUnalignedDirectWriteFallsBack(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, root.Close()) }()
	f, err := Create(root, "weights", 10_000, How{Direct: true, Bounded: true}, false)
	require.NoError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte("x"), 5000), 100)
	require.NoError(t, err)
	require.False(t, f.Direct())
	require.NoError(t, f.Finish())
}

func TestAFinishedFileIsOpenedAgainOnlyWhenAskedTo(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, root.Close()) }()
	f, err := Create(root, "weights", 3, How{}, false)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("abc"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Finish())
	_, err = Create(root, "weights", 3, How{}, false)
	require.ErrorIs(t, err, os.ErrExist)
	f, err = Create(root, "weights", 3, How{}, true)
	require.NoError(t, err)
	got := make([]byte, 3)
	_, err = f.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "abc", string(got), "its content is kept")
	require.NoError(t, f.Finish())
}

func TestBootIDIsStable(t *testing.T) { require.Equal(t, BootID(), BootID()) }
