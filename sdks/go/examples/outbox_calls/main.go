// A caller that may crash at any moment: the key is on disk before the first byte is sent.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	semel "github.com/semel-rs/semel/sdks/go"
)

var client = (&semel.Transport{}).Client()

func charge(outbox *semel.Outbox, order string) error {
	call, err := outbox.Begin("charge " + order)
	if err != nil {
		return err
	}
	body := strings.NewReader(fmt.Sprintf(`{"order": %q, "cents": 500}`, order))
	req, err := http.NewRequest(http.MethodPost, os.Getenv("PAYMENTS_URL")+"/charges", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := call.Do(client, req)
	return keep(call, response, err)
}

func finishWhatWasLeft(outbox *semel.Outbox) error {
	calls, err := outbox.Pending()
	if err != nil {
		return err
	}
	for _, call := range calls {
		if !call.Sent() {
			err = call.Forget()
		} else {
			response, sent := call.Send(context.Background(), client, nil)
			err = keep(call, response, sent)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep prints the receipt, as an example of keeping it, and then forgets the call.
func keep(call *semel.Call, response *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct{ Receipt string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	fmt.Println(call.Name(), answer.Receipt)
	return call.Forget()
}

func main() {
	outbox, err := semel.OpenOutbox(os.Getenv("OUTBOX"))
	if err == nil {
		err = finishWhatWasLeft(outbox)
	}
	for _, order := range os.Args[1:] {
		if err == nil {
			err = charge(outbox, order)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}
