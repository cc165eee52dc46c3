// A job that is submitted twice and enqueued once.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
)

func orderCharge(ctx context.Context, queue *semel.Queue, order string, cents int) (*semel.Job, error) {
	return queue.Submit(ctx, semel.Submission{
		Kind:   "charge_customer",
		Params: map[string]any{"order": order, "cents": cents},
		Key:    "charge-" + order,
		KeyTTL: 30 * 24 * time.Hour,
	})
}

func main() {
	queue, err := semel.NewQueue(os.Getenv("SIDECAR_URL"), semel.Options{}) // http://127.0.0.1:8080
	if err != nil {
		log.Fatal(err)
	}
	defer queue.Close()
	first, err := orderCharge(context.Background(), queue, "ORD-123", 100)
	if err != nil {
		log.Fatal(err)
	}
	again, err := orderCharge(context.Background(), queue, "ORD-123", 100)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Status, again.Status, first.ID == again.ID)
}
