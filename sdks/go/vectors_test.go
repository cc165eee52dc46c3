package semel

import (
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/internal/canonical"
	"github.com/semel-rs/semel/sdks/go/internal/credentials"
	"github.com/semel-rs/semel/sdks/go/internal/digest"
	"github.com/semel-rs/semel/sdks/go/internal/vectors"
)

func TestVectorsOfKeys(t *testing.T) {
	type keyCase struct {
		Text     vectors.Text
		MaxBytes int `json:"max_bytes"`
		Extra    string
		OK       bool
		Error    string
	}
	for _, c := range vectors.Cases[keyCase](t, "keys.json", "cases") {
		err := checkKey(string(c.Text), c.MaxBytes, c.Extra)
		reason := ""
		if refused, ok := errors.AsType[*KeyError](err); ok {
			reason = refused.Reason
		}
		if (err == nil) != c.OK || reason != c.Error {
			t.Errorf("%.20q: %q, not %q", c.Text, reason, c.Error)
		}
	}
}

func TestVectorsOfFingerprints(t *testing.T) {
	type part struct {
		Kind      string
		Hex       *vectors.Hex
		Text      vectors.Text
		Canonical *string
	}
	type fingerprintCase struct {
		Name        string
		Secret      vectors.Secret
		Parts       []part
		Fingerprint string
		Refused     string
	}
	canonicals := 0
	for _, c := range vectors.Cases[fingerprintCase](t, "fingerprint.json", "cases") {
		var parts []digest.Part
		for _, p := range c.Parts {
			data := []byte(p.Text)
			if p.Hex != nil {
				data = *p.Hex
			}
			parts = append(parts, digest.Part{JSON: p.Kind == "json", Data: data})
			if p.Canonical == nil {
				continue
			}
			canonicals++
			if got, err := canonical.Canonicalize(data); err != nil || string(got) != *p.Canonical {
				t.Errorf("%s: %s (%v), not %s", c.Name, got, err, *p.Canonical)
			}
		}
		made, err := digest.Fingerprint(parts, c.Secret.Material)
		reason, _ := errors.AsType[canonical.Reason](err)
		if made != c.Fingerprint || string(reason) != c.Refused {
			t.Errorf("%s: %s %s, not %s %s", c.Name, made, reason, c.Fingerprint, c.Refused)
		}
	}
	if canonicals == 0 {
		t.Error("no canonical text was compared")
	}
}

func TestVectorsOfIdentities(t *testing.T) {
	type identityCase struct {
		Secret                                     vectors.Secret
		Environment, Tenant, Scope, Principal, Key vectors.Text
		Identity, Address, Seal                    string
	}
	for i, c := range vectors.Cases[identityCase](t, "identity.json", "cases") {
		name := digest.Name{
			Environment: string(c.Environment), Tenant: string(c.Tenant), Scope: string(c.Scope),
			Principal: string(c.Principal), Key: string(c.Key),
		}
		sum := digest.Identity(name, c.Secret.Material)
		got := hex.EncodeToString(sum[:])
		if got != c.Identity || got[:32] != c.Address || got[32:] != c.Seal {
			t.Errorf("%d: %s, not %s", i, got, c.Identity)
		}
	}
}

func TestVectorsOfDownstreamKeys(t *testing.T) {
	type downstreamCase struct {
		Secret   vectors.Secret
		Identity vectors.Hex
		Step     string
		Key      string
	}
	for _, c := range vectors.Cases[downstreamCase](t, "downstream.json", "cases") {
		if got := digest.DownstreamKey(c.Identity, c.Step, c.Secret.Material); got != c.Key {
			t.Errorf("%s: %s, not %s", c.Step, got, c.Key)
		}
	}
}

func TestVectorsOfCredentials(t *testing.T) {
	if names := vectors.Cases[string](t, "credentials.json", "headers"); !slices.Equal(names, credentials.Names) {
		t.Errorf("%v, not %v", credentials.Names, names)
	}
	type credentialsCase struct {
		Name          string
		Request       [][2]string
		More, Cookies []string
		Counts        [][2]any
	}
	for _, c := range vectors.Cases[credentialsCase](t, "credentials.json", "cases") {
		header := http.Header{}
		for _, line := range c.Request {
			header.Add(line[0], line[1])
		}
		counted := credentials.Rules{Headers: c.More, Cookies: c.Cookies}.Count(header, "")
		got := [][2]any{}
		for _, found := range counted {
			values := []any{}
			for _, value := range found.Values {
				values = append(values, value)
			}
			if len(values) > 0 {
				got = append(got, [2]any{found.Name, values})
			}
		}
		if !reflect.DeepEqual(got, c.Counts) || credentials.Any(counted) != (len(c.Counts) > 0) {
			t.Errorf("%s: %v, not %v", c.Name, got, c.Counts)
		}
	}
}

func TestVectorsOfAnswersThatAskToSignIn(t *testing.T) {
	type answerCase struct {
		Status    int
		Location  string
		Anonymous bool
		Kept      bool
	}
	for _, c := range vectors.Cases[answerCase](t, "credentials.json", "answers") {
		outcome := outcomeOfStatus(c.Status, "", c.Anonymous, c.Location)
		if kept := outcome == api.OutcomeComplete || outcome == api.OutcomeFail; kept != c.Kept {
			t.Errorf("%+v: %s", c, outcome)
		}
	}
}

func TestEveryFileOfVectorsIsRead(t *testing.T) {
	// encrypted.json is for stores alone, tools.json for languages that have agent frameworks; package webhooks reads
	// its own.
	read := []string{
		"README.md", "credentials.json", "downstream.json", "encrypted.json", "fingerprint.json", "identity.json",
		"keys.json", "record.json", "tools.json", "webhooks.json",
	}
	files, err := os.ReadDir(vectors.Folder())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		found = append(found, file.Name())
	}
	if !slices.Equal(found, read) {
		t.Errorf("%v, not %v", found, read)
	}
}

func TestAPrincipalsOwnKeyIsNobodyElses(t *testing.T) {
	own, err := ownedKey("alice", "k-1")
	if err != nil || own == "k-1" {
		t.Fatal(own, err)
	}
	if plain, err := ownedKey("", "k-1"); err != nil || plain != "k-1" {
		t.Fatal(plain, err)
	}
	if _, err := ownedKey("", own); err == nil {
		t.Fatal("anybody may use it")
	}
}
