// A worker's function that runs once for each order, over the sidecar's protocol API.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	semel "github.com/semel-rs/semel/sdks/go"
)

type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

type Charge struct {
	ID string `json:"id"`
}

var errDeclined = errors.New("card declined")

type bank struct{ charges []string }

func (b *bank) charge(ctx context.Context, cents int, key string) (string, error) {
	if cents > 10_000 {
		return "", errDeclined
	}
	b.charges = append(b.charges, key)
	return fmt.Sprintf("ch_%d", len(b.charges)), nil
}

func charge(ctx context.Context, sidecar *semel.Sidecar, b *bank, order Order) (Charge, error) {
	op := semel.Operation{
		Scope: "charge", Key: order.ID, Payload: order,
		// Money can't be taken back: if this process dies half-way, nobody repeats it until somebody has looked.
		Terms: semel.Terms{Crash: semel.Hold, Derive: []string{"bank"}},
	}
	return semel.Do(ctx, sidecar, op, func(ctx context.Context, lease *semel.Lease) (Charge, error) {
		key, err := lease.DeriveKey(ctx, "bank")
		if errors.Is(err, semel.ErrUnprotected) {
			key = order.ID // the server only observes this scope
		} else if err != nil {
			return Charge{}, fmt.Errorf("%w: %w", semel.ErrNoEffect, err)
		}
		id, err := b.charge(ctx, order.Cents, key)
		switch {
		case errors.Is(err, errDeclined):
			return Charge{}, semel.Final(map[string]string{"error": "declined"}) // kept: declined again
		case errors.Is(err, context.DeadlineExceeded):
			return Charge{}, fmt.Errorf("%w: %w", semel.ErrUnknown, err) // sent, and no reply came: in doubt
		}
		return Charge{id}, err
	})
}

func main() {
	sidecar, err := semel.NewSidecar(os.Getenv("SIDECAR_URL"), semel.Options{}) // http://127.0.0.1:8080/_semel
	if err != nil {
		log.Fatal(err)
	}
	defer sidecar.Close()
	b := &bank{}
	for range 3 {
		done, err := charge(context.Background(), sidecar, b, Order{"ord-1", 500})
		fmt.Println(done.ID, err)
	}
	fmt.Println(len(b.charges), "charge(s)")
}
