// Long work: the lease is renewed in the background, and progress survives the process.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
)

func export(ctx context.Context, sidecar *semel.Sidecar, report string, pages int, write func(page int)) (int, error) {
	op := semel.Operation{
		Scope: "export", Key: report, Payload: map[string]int{"pages": pages},
		Terms: semel.Terms{Lease: 30 * time.Second},
	}
	return semel.Do(ctx, sidecar, op, func(ctx context.Context, lease *semel.Lease) (int, error) {
		done := 0
		if _, err := lease.Checkpoint(&done); err != nil {
			return 0, err
		}
		for page := done; page < pages; page++ {
			if err := lease.Check(); err != nil { // ErrLeaseLost: another owner has taken over
				return 0, err
			}
			write(page)
			if err := lease.SaveCheckpoint(ctx, page+1); err != nil {
				return 0, err
			}
		}
		return pages, nil
	})
}

func main() {
	sidecar, err := semel.NewSidecar(os.Getenv("SIDECAR_URL"), semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sidecar.Close()
	pages, err := export(context.Background(), sidecar, "r-1", 3, func(page int) { fmt.Println("page", page) })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pages, "pages")
}
