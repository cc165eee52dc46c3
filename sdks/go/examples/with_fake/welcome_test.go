// Testing your own code: a server in memory, no network, and replies that get lost.
package welcome

import (
	"context"
	"testing"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/semeltest"
)

func welcome(ctx context.Context, sidecar *semel.Sidecar, user string, sent *[]string) (int, error) {
	op := semel.Operation{Scope: "welcome mail", Key: user}
	return semel.Do(ctx, sidecar, op, func(context.Context, *semel.Lease) (int, error) {
		*sent = append(*sent, user)
		return len(*sent), nil
	})
}

func TestALostReplySendsNoSecondMail(t *testing.T) {
	fake, sent := &semeltest.Fake{}, []string{}
	fake.LoseReplies(2)
	for range 2 {
		if count, err := welcome(t.Context(), fake.Sidecar(semel.Options{}), "ada", &sent); count != 1 || err != nil {
			t.Fatal(count, err)
		}
	}
	if len(sent) != 1 || fake.State("welcome mail", "ada") != api.StatusCompleted {
		t.Fatal(sent)
	}
}

func TestAfterADayTheKeyIsNew(t *testing.T) {
	fake, sent := &semeltest.Fake{}, []string{}
	for range 2 {
		if _, err := welcome(t.Context(), fake.Sidecar(semel.Options{}), "ada", &sent); err != nil {
			t.Fatal(err)
		}
		fake.Advance(25 * time.Hour)
	}
	if len(sent) != 2 {
		t.Fatal(sent)
	}
}
