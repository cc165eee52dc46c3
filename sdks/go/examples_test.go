package semel_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The examples run, and docs/go.md shows exactly these files.

var built string

// said runs an example, and returns what it printed.
func said(t *testing.T, name string, env []string, arguments ...string) string {
	t.Helper()
	command := exec.Command(build(t, name), arguments...)
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func build(t *testing.T, name string) string {
	t.Helper()
	if built == "" {
		built = must[string](t)(os.MkdirTemp("", "semel-examples"))
		out, err := exec.Command("go", "build", "-race", "-o", built, "./examples/...").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return filepath.Join(built, name)
}

func TestTheExampleOfAFirstCall(t *testing.T) {
	base, service := sharedSidecar(t)
	env := []string{"PAYMENTS_URL=" + base}
	for _, replayed := range []bool{false, true} {
		got := said(t, "first_call", env)
		if want := fmt.Sprintln(201, service.receipt("ord-1"), replayed); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestTheExampleOfTheOutbox(t *testing.T) {
	base, service := sharedSidecar(t)
	folder := t.TempDir()
	got := said(t, "outbox_calls", []string{"PAYMENTS_URL=" + base, "OUTBOX=" + folder}, "o-1", "o-2")
	want := "charge o-1 " + service.receipt("o-1") + "\ncharge o-2 " + service.receipt("o-2") + "\n"
	if left, _ := os.ReadDir(folder); got != want || len(left) > 0 {
		t.Errorf("%q, not %q; %d left", got, want, len(left))
	}
}

func TestTheExamplesOfWorkers(t *testing.T) {
	base, _ := sharedSidecar(t)
	env := []string{"SIDECAR_URL=" + base + "/_semel"}
	if got := said(t, "worker", env); got != "ch_1 <nil>\nch_1 <nil>\nch_1 <nil>\n1 charge(s)\n" {
		t.Error(got)
	}
	if got := said(t, "long_export", env); got != "page 0\npage 1\npage 2\n3 pages\n" {
		t.Error(got)
	}
	if got := said(t, "long_export", env); got != "3 pages\n" {
		t.Error(got)
	}
}

func TestTheExampleOfAService(t *testing.T) {
	base, _ := sharedSidecar(t)
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	command := exec.Command(build(t, "http_service"))
	command.Env = append(os.Environ(), "SIDECAR_URL="+base+"/_semel", "LISTEN="+address)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	post := func() (string, string) {
		req, _ := http.NewRequest(http.MethodPost, "http://"+address+"/charges", strings.NewReader(`{"cents": 5}`))
		req.Header.Set("Idempotency-Key", "k-1")
		req.Header.Set("X-User", "ada")
		for range 600 {
			if response, err := http.DefaultClient.Do(req.Clone(t.Context())); err == nil {
				body, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				return string(body), response.Header.Get("Idempotent-Replayed")
			}
			req.Body = io.NopCloser(strings.NewReader(`{"cents": 5}`))
			time.Sleep(50 * time.Millisecond)
		}
		return "", "never"
	}
	for _, replayed := range []string{"", "true"} {
		if body, header := post(); body != `{"charge": "ch_1"}` || header != replayed {
			t.Error(body, header)
		}
	}
}

func TestTheExampleOfWebhooks(t *testing.T) {
	base, _ := sharedSidecar(t)
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	command := exec.Command(build(t, "webhook_app"))
	command.Env = append(os.Environ(), "SIDECAR_URL="+base+"/_semel", "LISTEN="+address, "STRIPE_WEBHOOK_SECRET=new old")
	var printed bytes.Buffer
	command.Stdout = &printed
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	body := `{"id":"evt_1","type":"checkout.session.completed","data":{"object":{"id":"cs_1"}}}`
	post := func(secret string) int {
		seconds := fmt.Sprint(time.Now().Unix())
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(seconds + "." + body))
		req, _ := http.NewRequest(http.MethodPost, "http://"+address+"/stripe", strings.NewReader(body))
		req.Header.Set("Stripe-Signature", "t="+seconds+",v1="+hex.EncodeToString(mac.Sum(nil)))
		for range 600 {
			if response, err := http.DefaultClient.Do(req); err == nil {
				_ = response.Body.Close()
				return response.StatusCode
			}
			req.Body = io.NopCloser(strings.NewReader(body))
			time.Sleep(50 * time.Millisecond)
		}
		return 0
	}
	if got := []int{post("new"), post("old"), post("new"), post("other")}; !slices.Equal(got, []int{200, 200, 200, 401}) {
		t.Error(got)
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	if printed.String() != "shipping cs_1\n" {
		t.Error(printed.String())
	}
}

func TestTheExampleOfAQueue(t *testing.T) {
	base := jobsSidecar(t)
	if got := said(t, "queue_submit", []string{"SIDECAR_URL=" + base}); got != "accepted in_progress true\n" {
		t.Error(got)
	}
}

func TestThePageShowsTheFiles(t *testing.T) {
	page := string(must[[]byte](t)(os.ReadFile("../../docs/go.md")))
	blocks := regexp.MustCompile("(?s)<!-- file: (\\S+) -->\n```go\n(.*?)```").FindAllStringSubmatch(page, -1)
	if strings.Count(page, "```go") != len(blocks) {
		t.Error("every block names its file")
	}
	shown := map[string]bool{}
	for _, block := range blocks {
		shown[block[1]] = true
		if text, err := os.ReadFile(filepath.Join("examples", block[1])); err != nil || string(text) != block[2] {
			t.Errorf("%s: %v", block[1], err)
		}
	}
	files, _ := filepath.Glob("examples/*/*.go")
	for _, file := range files {
		if name := strings.TrimPrefix(filepath.ToSlash(file), "examples/"); !shown[name] {
			t.Errorf("%s isn't shown", name)
		}
	}
}
