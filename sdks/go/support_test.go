package semel_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/semeltest"
)

// Real processes and real sockets: the sidecar in front of a service that counts what it does.

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		chaosChild(os.Args[2:])
		return
	}
	code := m.Run()
	if shared.process != nil {
		_ = shared.process.Process.Kill()
		_ = shared.process.Wait()
	}
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// needs returns a variable of the environment. With -short, tests that need servers are left out.
func needs(t *testing.T, variable, how string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		if testing.Short() {
			t.Skip("needs servers")
		}
		t.Fatalf("%s is not set: see `%s`, or leave these tests out with -short", variable, how)
	}
	return value
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

func redisURL(t *testing.T) string {
	t.Helper()
	return needs(t, "SEMEL_TEST_REDIS_URL", "cargo xtask services up redis")
}

// startSidecar starts the real program on a real store, in a namespace of its own.
func startSidecar(t *testing.T, store, upstream string, more ...string) (string, *exec.Cmd) {
	t.Helper()
	program := needs(t, "SEMEL_TEST_PROGRAM", "cargo xtask sdks go")
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	arguments := []string{
		"serve", "--upstream", upstream, "--store", store, "--listen", address, "--set", "environment=sdk-" + randomHex(),
		"--set", "api.access=loopback", "--set", "log.level=error",
	}
	process := exec.Command(program, append(arguments, more...)...)
	// It logs what the tests do to it; that is shown only if it doesn't start.
	var said bytes.Buffer
	process.Stdout, process.Stderr = &said, &said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	base := "http://" + address
	for range 600 {
		if response, err := http.Get(base + "/_semel/readyz"); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return base, process
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = process.Process.Kill()
	_ = process.Wait()
	t.Fatalf("the sidecar never answers: %s", &said)
	return "", nil
}

func sidecarFor(t *testing.T, upstream string) string {
	t.Helper()
	return ended(t)(startSidecar(t, redisURL(t), upstream))
}

// jobsSidecar has jobs, which need a store that has a queue beside its records.
func jobsSidecar(t *testing.T) string {
	t.Helper()
	store := needs(t, "SEMEL_TEST_POSTGRES_URL", "cargo xtask services up postgres")
	return ended(t)(startSidecar(t, store, "http://127.0.0.1:9", "--set", "jobs.enabled=true"))
}

// ended ends a sidecar with its test.
func ended(t *testing.T) func(string, *exec.Cmd) string {
	return func(base string, process *exec.Cmd) string {
		t.Cleanup(func() {
			_ = process.Process.Kill()
			_ = process.Wait()
		})
		return base
	}
}

// shared is a sidecar and a service that several tests use.
var shared struct {
	once     sync.Once
	url      string
	process  *exec.Cmd
	payments *payments
}

func sharedSidecar(t *testing.T) (string, *payments) {
	t.Helper()
	needs(t, "SEMEL_TEST_PROGRAM", "cargo xtask sdks go")
	shared.once.Do(func() {
		shared.payments = newPayments()
		shared.url, shared.process = startSidecar(t, redisURL(t), shared.payments.URL)
	})
	if shared.url == "" {
		t.Fatal("there is no sidecar")
	}
	return shared.url, shared.payments
}

// payments charges cards, as often as it is asked to.
type payments struct {
	*httptest.Server
	mu       sync.Mutex
	effects  map[string]int
	receipts map[string]string
}

func newPayments() *payments {
	p := &payments{effects: map[string]int{}, receipts: map[string]string{}}
	p.Server = httptest.NewServer(p)
	return p
}

func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var order struct {
		Order  string `json:"order"`
		Status int    `json:"status"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.effects[order.Order]++
	receipt := randomHex()
	p.receipts[order.Order] = receipt
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(max(order.Status, http.StatusCreated))
	_ = json.NewEncoder(w).Encode(map[string]string{"order": order.Order, "receipt": receipt})
}

func (p *payments) count(order string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.effects[order]
}

func (p *payments) receipt(order string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.receipts[order]
}

func randomHex() string {
	var out [6]byte
	_, _ = rand.Read(out[:])
	return hex.EncodeToString(out[:])
}

var quick = semel.RetryPolicy{Base: 10 * time.Millisecond, Cap: 100 * time.Millisecond, TotalTimeout: 30 * time.Second}

// onBoth runs one test on both servers: what holds for the real one has to hold for the fake.
func onBoth(t *testing.T, test func(t *testing.T, sidecar *semel.Sidecar)) {
	t.Run("fake", func(t *testing.T) { test(t, new(semeltest.Fake).Sidecar(semel.Options{})) })
	t.Run("real", func(t *testing.T) {
		base, _ := sharedSidecar(t)
		test(t, connect(t, base, semel.Options{Retry: quick}))
	})
}

func connect(t *testing.T, base string, options semel.Options) *semel.Sidecar {
	t.Helper()
	sidecar, err := semel.NewSidecar(base+"/_semel", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sidecar.Close)
	return sidecar
}

func must[T any](t *testing.T) func(value T, err error) T {
	t.Helper()
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
