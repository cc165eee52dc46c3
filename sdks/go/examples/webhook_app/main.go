// Stripe delivers an event again and again; the order is shipped once.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/webhooks"
)

func handle(_ context.Context, event *webhooks.Event) (any, error) {
	var told struct {
		Type string
		Data struct{ Object struct{ ID string } }
	}
	if err := event.Decode(&told); err != nil {
		return nil, semel.Final("no event of Stripe's")
	}
	if told.Type == "checkout.session.completed" {
		fmt.Println("shipping", told.Data.Object.ID)
	}
	return nil, nil
}

func main() {
	sidecar, err := semel.NewSidecar(os.Getenv("SIDECAR_URL"), semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	secrets := strings.Fields(os.Getenv("STRIPE_WEBHOOK_SECRET")) // while it is replaced: the new and the old one
	stripe, err := webhooks.New(webhooks.Stripe, secrets...)
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/stripe", webhooks.Handler{Verifier: stripe, Sidecar: sidecar, Handle: handle})
	log.Fatal(http.ListenAndServe(os.Getenv("LISTEN"), nil))
}
