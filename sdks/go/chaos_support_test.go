package semel_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// What the proxy does to a request, and of a hundred how often.
var faults = []struct {
	name   string
	weight int
}{
	{"none", 50},
	{"refuse", 8},         // closed before anything went on
	{"drop_request", 8},   // read, and never passed on
	{"drop_response", 12}, // passed on, and the answer thrown away
	{"truncate", 10},      // two thirds of the answer
	{"duplicate", 8},      // passed on twice
	{"delay", 4},          // longer than the client waits
}

// chaos is a proxy that does to requests what networks do: drops, delays, duplicates, truncates. From a seed.
type chaos struct {
	url      string
	upstream string
	delay    time.Duration
	ended    chan struct{}

	mu       sync.Mutex
	random   *rand.Rand
	faults   map[string]int
	keys     map[string]map[string]bool // by the order that they came with
	requests int
}

func newChaos(t *testing.T, upstream string, delay time.Duration) *chaos {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{
		url: "http://" + listener.Addr().String(), upstream: strings.TrimPrefix(upstream, "http://"), delay: delay,
		ended: make(chan struct{}), random: rand.New(rand.NewPCG(seed(), 0)),
		faults: map[string]int{}, keys: map[string]map[string]bool{},
	}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { c.connection(connection) })
		}
	})
	t.Cleanup(func() {
		close(c.ended)
		_ = listener.Close()
		connections.Wait()
	})
	return c
}

func (c *chaos) draw() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.random.IntN(100)
	for _, fault := range faults {
		if n -= fault.weight; n < 0 {
			c.faults[fault.name]++
			return fault.name
		}
	}
	panic("the weights make no hundred")
}

func (c *chaos) connection(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	// A client that keeps a connection without using it doesn't keep the test.
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	fault := c.draw()
	if fault == "refuse" {
		return
	}
	request, err := http.ReadRequest(bufio.NewReader(connection))
	if err != nil {
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	c.note(request, body)
	if fault == "drop_request" {
		return
	}
	answer := c.forward(request, body)
	if fault == "duplicate" {
		answer = c.forward(request, body)
	}
	switch fault {
	case "drop_response":
		return
	case "truncate":
		answer = answer[:len(answer)*2/3]
	case "delay":
		select {
		case <-time.After(c.delay):
		case <-c.ended:
		}
	}
	_, _ = connection.Write(answer)
}

func (c *chaos) note(request *http.Request, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	if key := request.Header.Get("Idempotency-Key"); key != "" {
		if c.keys[string(body)] == nil {
			c.keys[string(body)] = map[string]bool{}
		}
		c.keys[string(body)][key] = true
	}
}

// forward asks upstream: one request a connection, so that an answer ends with it.
func (c *chaos) forward(request *http.Request, body []byte) []byte {
	upstream, err := net.Dial("tcp", c.upstream)
	if err != nil {
		return nil
	}
	defer func() { _ = upstream.Close() }()
	var sent bytes.Buffer
	_, _ = fmt.Fprintf(&sent, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n", request.Method, request.RequestURI, request.Host, len(body))
	_ = request.Header.WriteSubset(&sent, map[string]bool{"Connection": true, "Content-Length": true})
	sent.WriteString("\r\n")
	sent.Write(body)
	_, _ = upstream.Write(sent.Bytes())
	answer, _ := io.ReadAll(upstream)
	return answer
}

func (c *chaos) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fault := range faults {
		if c.faults[fault.name] == 0 {
			t.Errorf("seed %d: no %s", seed(), fault.name)
		}
	}
	for body, keys := range c.keys {
		if len(keys) != 1 {
			t.Errorf("seed %d: %d keys for one call: %s", seed(), len(keys), body)
		}
	}
}
