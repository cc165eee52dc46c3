// A service in which a POST with an Idempotency-Key runs once.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"

	semel "github.com/semel-rs/semel/sdks/go"
)

var charges atomic.Int64

func charge(w http.ResponseWriter, r *http.Request) {
	var order struct{ Cents int }
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Cents <= 0 {
		http.Error(w, "nothing to charge", http.StatusUnprocessableEntity)
		return
	}
	// Requests without a key have no lease.
	if lease := semel.LeaseOf(r.Context()); lease != nil {
		key, err := lease.DeriveKey(r.Context(), "bank")
		if err != nil && !errors.Is(err, semel.ErrUnprotected) {
			w.Header().Set("Semel-Outcome", "no-effect") // the key is free again
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		_ = key // for the bank
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"charge": "ch_%d"}`, charges.Add(1))
}

func main() {
	sidecar, err := semel.NewSidecar(os.Getenv("SIDECAR_URL"), semel.Options{
		Terms: semel.Terms{Crash: semel.Hold, Derive: []string{"bank"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", charge)
	once := semel.Middleware{
		Sidecar:   sidecar,
		Scope:     "charges",
		Principal: func(r *http.Request) string { return r.Header.Get("X-User") }, // keys of two users never meet
	}
	log.Fatal(http.ListenAndServe(os.Getenv("LISTEN"), once.Handler(mux)))
}
