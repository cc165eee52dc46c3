// Command smoke uses the module as its users do, with a real sidecar: the program is the argument.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/semeltest"
)

func main() {
	log.SetFlags(0)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	try(err)
	address := listener.Addr().String()
	try(listener.Close())
	program := exec.Command(
		os.Args[1], "serve", "--upstream", "http://127.0.0.1:9", "--store", "memory://", "--listen", address,
		"--set", "api.access=loopback", "--set", "log.level=error",
	)
	try(program.Start())
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	}()
	url := "http://" + address + "/_semel"
	for range 600 {
		if response, err := http.Get(url + "/readyz"); err == nil && response.StatusCode == http.StatusOK {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	real, err := semel.NewSidecar(url, semel.Options{})
	try(err)
	for _, sidecar := range []*semel.Sidecar{real, new(semeltest.Fake).Sidecar(semel.Options{})} {
		for _, replayed := range []bool{false, true} {
			result, err := semel.Run(context.Background(), sidecar, semel.Operation{Scope: "smoke", Key: "k-1"},
				func(context.Context, *semel.Lease) (string, error) { return "done", nil })
			if err != nil || result.Value != "done" || result.Replayed != replayed {
				log.Panicf("%+v, %v", result, err)
			}
		}
	}
	fmt.Println("semel for Go, from a module of its own: runs once")
}

func try(err error) {
	if err != nil {
		log.Panic(err)
	}
}
