package semel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
)

// Calls through a network that drops, delays, duplicates and truncates: every effect once, one key for each call.

const (
	calls         = 2000
	childArgument = "chaos-child"
)

func seed() uint64 {
	if found, err := strconv.ParseUint(os.Getenv("SEMEL_TEST_SEED"), 10, 64); err == nil {
		return found
	}
	return 7
}

var patient = semel.RetryPolicy{
	MaxAttempts: 60, Base: 10 * time.Millisecond, Cap: 100 * time.Millisecond, AttemptTimeout: time.Second,
	TotalTimeout: 2 * time.Minute,
}

const delay = 1500 * time.Millisecond

func charge(client *http.Client, url, order string) (*http.Response, []byte, error) {
	text, _ := json.Marshal(map[string]string{"order": order})
	response, err := client.Post(url+"/charges", "application/json", bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}

func receiptOf(body []byte) string {
	var found struct{ Receipt string }
	_ = json.Unmarshal(body, &found)
	return found.Receipt
}

// inTurns runs the numbers below count, so many at once.
func inTurns(count, atOnce int, run func(number int)) {
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for number := range count {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			run(number)
		})
	}
	all.Wait()
}

func TestTwoThousandCallsThroughABadNetworkActOnceEach(t *testing.T) {
	t.Parallel()
	service := newPayments()
	defer service.Close()
	proxy := newChaos(t, sidecarFor(t, service.URL), delay)
	transport := &semel.Transport{Base: &http.Transport{}, Retry: patient, Budget: &semel.RetryBudget{Reserve: 1e9}}
	client := transport.Client()
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	attempts := 0
	inTurns(calls, 32, func(number int) {
		order := fmt.Sprintf("order-%d", number)
		response, body, err := charge(client, proxy.url, order)
		if err != nil {
			t.Errorf("seed %d: %s: %v", seed(), order, err)
			return
		}
		if response.StatusCode != http.StatusCreated || receiptOf(body) != service.receipt(order) {
			t.Errorf("seed %d: %s: %d %s", seed(), order, response.StatusCode, body)
		}
		mu.Lock()
		defer mu.Unlock()
		attempts += semel.AnswerOf(response).Attempts
	})
	proxy.check(t)
	for number := range calls {
		if order := fmt.Sprintf("order-%d", number); service.count(order) != 1 {
			t.Errorf("seed %d: %s acted %d times", seed(), order, service.count(order))
		}
	}
	if len(proxy.keys) != calls || attempts < calls*13/10 {
		t.Errorf("%d calls, %d attempts", len(proxy.keys), attempts)
	}
	t.Logf("%d calls, %d attempts, %d requests, %v", calls, attempts, proxy.requests, proxy.faults)
}

// The seeded bug: what the other tests look for can be seen.
func TestAClientThatMakesKeysAnewIsCaught(t *testing.T) {
	t.Parallel()
	service := newPayments()
	defer service.Close()
	proxy := newChaos(t, sidecarFor(t, service.URL), 200*time.Millisecond)
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Second}
	defer client.CloseIdleConnections()
	twice := false
	for number := range 100 {
		order := fmt.Sprintf("order-%d", number)
		for range 60 {
			text := fmt.Sprintf(`{"order":%q}`, order)
			req, _ := http.NewRequest(http.MethodPost, proxy.url+"/charges", strings.NewReader(text))
			req.Header.Set(semel.KeyHeader, semel.NewKey())
			if response, err := client.Do(req); err == nil {
				_ = response.Body.Close()
				break
			}
		}
		twice = twice || service.count(order) > 1
	}
	if !twice {
		t.Error("no effect happened twice")
	}
}

func TestKeysSurviveAClientThatIsKilled(t *testing.T) {
	t.Parallel()
	const count = 300
	chance := rand.New(rand.NewPCG(seed(), 1))
	service := newPayments()
	defer service.Close()
	proxy := newChaos(t, sidecarFor(t, service.URL), delay)
	folder := t.TempDir()
	results := filepath.Join(folder, "results")
	kills := 0
	for {
		child := exec.Command(os.Args[0], childArgument, proxy.url, filepath.Join(folder, "outbox"), results, strconv.Itoa(count))
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		// Spared after a dozen, so that it gets to an end; before, no life is long enough for that.
		life := 300 * time.Second
		if kills < 12 {
			life = time.Duration(100+chance.IntN(200)) * time.Millisecond
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(life):
			_ = child.Process.Kill()
			<-ended
			kills++
			continue
		}
		break
	}
	if kills < 5 {
		t.Errorf("it was killed %d times", kills)
	}
	found := map[string]string{}
	for _, line := range readLines(t, results) {
		var done struct{ Order, Receipt string }
		if err := json.Unmarshal([]byte(line), &done); err != nil {
			t.Fatal(err)
		}
		found[done.Order] = done.Receipt
	}
	for number := range count {
		order := fmt.Sprintf("restart-%d", number)
		if service.count(order) != 1 || found[order] != service.receipt(order) {
			t.Errorf("seed %d: %s acted %d times, %q", seed(), order, service.count(order), found[order])
		}
	}
	proxy.check(t)
	if left, _ := filepath.Glob(filepath.Join(folder, "outbox", "*.call")); len(left) > 0 {
		t.Errorf("%d calls are left", len(left))
	}
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// chaosChild is a client process that is killed and started again until its orders are done.
func chaosChild(arguments []string) {
	url, folder, results := arguments[0], arguments[1], arguments[2]
	count, _ := strconv.Atoi(arguments[3])
	try := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	outbox, err := semel.OpenOutbox(folder)
	try(err)
	file, err := os.OpenFile(results, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	try(err)
	client := (&semel.Transport{Retry: patient, Budget: &semel.RetryBudget{Reserve: 1e9}}).Client()
	keep := func(call *semel.Call, response *http.Response, err error) {
		try(err)
		body, err := io.ReadAll(response.Body)
		try(err)
		// One write to a file in append mode: a line is whole or not there.
		line, _ := json.Marshal(map[string]string{"order": call.Name(), "receipt": receiptOf(body)})
		_, err = file.Write(append(line, '\n'))
		try(err)
		try(file.Sync())
		try(call.Forget())
	}
	pending, err := outbox.Pending()
	try(err)
	inTurns(len(pending), 8, func(number int) {
		call := pending[number]
		if !call.Sent() {
			try(call.Forget())
			return
		}
		response, err := call.Send(context.Background(), client, nil)
		keep(call, response, err)
	})
	text, err := os.ReadFile(results)
	try(err)
	inTurns(count, 8, func(number int) {
		order := fmt.Sprintf("restart-%d", number)
		if strings.Contains(string(text), fmt.Sprintf("%q", order)) {
			return
		}
		call, err := outbox.Begin(order)
		try(err)
		req, _ := http.NewRequest(http.MethodPost, url+"/charges", strings.NewReader(fmt.Sprintf(`{"order":%q}`, order)))
		req.Header.Set("Content-Type", "application/json")
		response, err := call.Do(client, req)
		keep(call, response, err)
	})
}

func TestAWorkerBehindABadNetworkRunsEachEffectOnce(t *testing.T) {
	t.Parallel()
	proxy := newChaos(t, sidecarFor(t, "http://127.0.0.1:9"), delay)
	sidecar := connect(t, proxy.url, semel.Options{Retry: patient, Budget: &semel.RetryBudget{Reserve: 1e9}})
	var mu sync.Mutex
	effects := map[string]int{}
	inTurns(600, 16, func(number int) {
		key := fmt.Sprintf("work-%d", number/2)
		op := semel.Operation{Scope: "work", Key: key, Payload: map[string]string{"of": key}}
		value, err := semel.Do(t.Context(), sidecar, op, func(context.Context, *semel.Lease) (int, error) {
			mu.Lock()
			effects[key]++
			count := effects[key]
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			return count, nil
		})
		if err != nil || value != 1 {
			t.Errorf("seed %d: %s: %d, %v", seed(), key, value, err)
		}
	})
	proxy.check(t)
	if len(effects) != 300 {
		t.Errorf("%d effects", len(effects))
	}
	for key, count := range effects {
		if count != 1 {
			t.Errorf("seed %d: %s ran %d times", seed(), key, count)
		}
	}
}
