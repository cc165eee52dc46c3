package semel_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
)

func openOutbox(t *testing.T, folder string) *semel.Outbox {
	t.Helper()
	return must[*semel.Outbox](t)(semel.OpenOutbox(folder))
}

func orderRequest(url, order string) *http.Request {
	req, _ := http.NewRequest(http.MethodPost, url+"/charges", strings.NewReader(fmt.Sprintf(`{"order":%q}`, order)))
	req.Header.Set("Content-Type", "application/json")
	return req
}

func TestACallKeepsItsKeyUntilItsAnswerIsSafe(t *testing.T) {
	base, service := sharedSidecar(t)
	folder, order, client := t.TempDir(), semel.NewKey(), (&semel.Transport{Retry: quick}).Client()
	call := must[*semel.Call](t)(openOutbox(t, folder).Begin("order-1"))
	first := must[*http.Response](t)(call.Do(client, orderRequest(base, order)))
	// It died before the answer was kept; another process goes on.
	left := must[[]*semel.Call](t)(openOutbox(t, folder).Pending())
	if len(left) != 1 || left[0].Key() != call.Key() || !left[0].Sent() || left[0].Name() != "order-1" {
		t.Fatal(left)
	}
	again := must[*http.Response](t)(left[0].Send(t.Context(), client, nil))
	one, _ := io.ReadAll(first.Body)
	two, _ := io.ReadAll(again.Body)
	if !semel.AnswerOf(again).Replayed || string(one) != string(two) || service.count(order) != 1 {
		t.Errorf("%s, %s", one, two)
	}
	if err := left[0].Forget(); err != nil {
		t.Fatal(err)
	}
	// Forgotten twice is forgotten once.
	if err := call.Forget(); err != nil {
		t.Fatal(err)
	}
	fresh := must[*semel.Call](t)(openOutbox(t, folder).Begin("order-1"))
	if fresh.Key() == call.Key() || fresh.Sent() {
		t.Error("an answered call is forgotten, and the name is new")
	}
	if err := call.Forget(); err != nil {
		t.Fatal(err)
	}
	if still := must[[]*semel.Call](t)(openOutbox(t, folder).Pending()); len(still) != 1 {
		t.Error("another's call was forgotten")
	}
}

func TestACallIsSentWithWhatItWasBegunWith(t *testing.T) {
	server := newScripted(t, func(http.ResponseWriter, int) {})
	outbox, client := openOutbox(t, t.TempDir()), (&semel.Transport{Retry: quick}).Client()
	call := must[*semel.Call](t)(outbox.Begin("a"))
	must[*http.Response](t)(call.Do(client, orderRequest(server.URL, "1")))
	same := must[*semel.Call](t)(outbox.Begin("a"))
	must[*http.Response](t)(same.Do(client, orderRequest(server.URL, "1")))
	if _, err := same.Do(client, orderRequest(server.URL, "2")); !errors.Is(err, semel.ErrCallChanged) {
		t.Error(err)
	}
	server.check(t, 2)
	if _, err := must[*semel.Call](t)(outbox.Begin("b")).Send(t.Context(), client, nil); err == nil {
		t.Error("there is no request to send")
	}
	for _, name := range []string{"", strings.Repeat("a", 1025)} {
		if _, err := outbox.Begin(name); err == nil {
			t.Error(len(name))
		}
	}
}

func TestWhatAnotherProcessMayHaveSentIsUnknown(t *testing.T) {
	folder := t.TempDir()
	nobody := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	client := (&semel.Transport{Retry: semel.RetryPolicy{MaxAttempts: 1}}).Client()
	call := must[*semel.Call](t)(openOutbox(t, folder).Begin("a"))
	_, err := call.Do(client, orderRequest(nobody, "1"))
	if gaveUp, ok := errors.AsType[*semel.GaveUpError](err); !ok || gaveUp.Unknown {
		t.Error(err)
	}
	left := must[[]*semel.Call](t)(openOutbox(t, folder).Pending())
	_, err = left[0].Send(t.Context(), client, nil)
	if gaveUp, ok := errors.AsType[*semel.GaveUpError](err); !ok || !gaveUp.Unknown {
		t.Error(err)
	}
}

func TestTheOutboxHasNoCredentialsAndIsItsOwnersAlone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "outbox")
	server := newScripted(t, func(http.ResponseWriter, int) {})
	outbox := openOutbox(t, folder)
	call := must[*semel.Call](t)(outbox.Begin("a"))
	req := orderRequest(strings.Replace(server.URL, "http://", "http://ada:passw0rd@", 1), "1")
	req.Header.Set("Authorization", "Bearer t0ken")
	must[*http.Response](t)(call.Do(&http.Client{Transport: &semel.Transport{}}, req))
	files := must[[]os.DirEntry](t)(os.ReadDir(folder))
	text := string(must[[]byte](t)(os.ReadFile(filepath.Join(folder, files[0].Name()))))
	info := must[os.FileInfo](t)(files[0].Info())
	if len(files) != 1 || strings.Contains(text, "passw0rd") || strings.Contains(text, "t0ken") || info.Mode().Perm() != 0o600 {
		t.Errorf("%s %s", info.Mode(), text)
	}
	if about := must[os.FileInfo](t)(os.Stat(folder)); about.Mode().Perm() != 0o700 {
		t.Error(about.Mode())
	}
}

// As the package for Python writes it.
const ofPython = `{"version": 1, "name": "order-1", "key": "idem_1", "created": 1790000000.5, "request": {"method": "POST", "url": "URL", "content_type": null, "body_base64": "e30="}}`

func TestCallsOfOtherLanguagesAreSent(t *testing.T) {
	server := newScripted(t, func(http.ResponseWriter, int) {})
	folder := t.TempDir()
	outbox := openOutbox(t, folder)
	must[*semel.Call](t)(outbox.Begin("order-1"))
	files, _ := filepath.Glob(filepath.Join(folder, "*.call"))
	if err := os.WriteFile(files[0], []byte(strings.Replace(ofPython, "URL", server.URL, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	left := must[[]*semel.Call](t)(outbox.Pending())
	must[*http.Response](t)(left[0].Send(t.Context(), (&semel.Transport{}).Client(), nil))
	if server.check(t, 1); server.keys[0] != "idem_1" {
		t.Error(server.keys)
	}
}

func TestAFileThatCannotBeReadIsNeverTakenForACallWithoutAKey(t *testing.T) {
	folder := t.TempDir()
	outbox := openOutbox(t, folder)
	must[*semel.Call](t)(outbox.Begin("order-1"))
	files, _ := filepath.Glob(filepath.Join(folder, "*.call"))
	for _, text := range []string{"", "{", `{"version": 2}`, strings.Replace(ofPython, "order-1", "order-2", 1), strings.Replace(ofPython, "idem_1", "", 1)} {
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := outbox.Begin("order-1"); !errors.Is(err, semel.ErrOutboxDamaged) {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := outbox.Pending(); !errors.Is(err, semel.ErrOutboxDamaged) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhatADeadProcessLeftIsSwept(t *testing.T) {
	folder := t.TempDir()
	call := must[*semel.Call](t)(openOutbox(t, folder).Begin("order-1"))
	files, _ := filepath.Glob(filepath.Join(folder, "*.call"))
	// It died while it forgot, and another one while it wrote.
	aside, beside := filepath.Join(folder, ".old-00"), filepath.Join(folder, ".new-00")
	if err := errors.Join(os.Rename(files[0], aside), os.WriteFile(beside, []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if left := must[[]*semel.Call](t)(openOutbox(t, folder).Pending()); len(left) != 0 {
		t.Error("it may still be at work")
	}
	long := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.Chtimes(aside, long, long), os.Chtimes(beside, long, long)); err != nil {
		t.Fatal(err)
	}
	left := must[[]*semel.Call](t)(openOutbox(t, folder).Pending())
	rest, _ := os.ReadDir(folder)
	if len(left) != 1 || left[0].Key() != call.Key() || len(rest) != 1 {
		t.Error(left, rest)
	}
}
