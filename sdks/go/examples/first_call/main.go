// A charge that is made once, whatever the network does.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	semel "github.com/semel-rs/semel/sdks/go"
)

var client = (&semel.Transport{}).Client()

func charge(ctx context.Context, order string, cents int) error {
	body, err := json.Marshal(map[string]any{"order": order, "cents": cents})
	if err != nil {
		return err
	}
	url := os.Getenv("PAYMENTS_URL") + "/charges"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(semel.KeyHeader, "charge-"+order) // left out, the client makes one
	response, err := client.Do(req)
	if errors.Is(err, semel.ErrConflict) {
		return fmt.Errorf("a bug: the key was used for another amount, and nothing was charged for this one: %w", err)
	}
	if gaveUp, ok := errors.AsType[*semel.GaveUpError](err); ok {
		// Ask again later, with the same key.
		return fmt.Errorf("no answer after %d attempts; may be done: %t", gaveUp.Attempts, gaveUp.Unknown)
	}
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct{ Receipt string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	fmt.Println(response.StatusCode, answer.Receipt, semel.AnswerOf(response).Replayed)
	return nil
}

func main() {
	if err := charge(context.Background(), "ord-1", 500); err != nil {
		log.Fatal(err)
	}
}
