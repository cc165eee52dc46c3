package semel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	maxNameBytes = 1024
	beside       = ".new-"
	aside        = ".old-"
	stale        = time.Hour
)

// ErrCallChanged: a call of this name is in the outbox with another request, or it is another call by now.
var ErrCallChanged = errors.New("semel: a call of this name was begun with another key or request")

// ErrOutboxDamaged: a file of the outbox can't be read. It is never taken for a call without a key.
var ErrOutboxDamaged = errors.New("semel: a file of the outbox can't be read")

// Outbox keeps calls that survive their process: a folder with one file for each call that has no answer yet.
//
// A file is whole or not there: it is written under another name, made durable, and then linked to its own, which only one
// process wins. So there is no lock to be left behind, any number of processes may share the folder, and another one, in
// Go, Python, TypeScript or Rust, may send what a dead one left. Two that send one call do no harm: both have the same key.
type Outbox struct {
	folder string
}

// OpenOutbox opens the folder, and makes it for its owner alone if it isn't there: requests are in it.
func OpenOutbox(folder string) (*Outbox, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	o := &Outbox{folder}
	return o, o.sweep()
}

// Call is one call of an outbox.
type Call struct {
	outbox *Outbox
	entry  entry
}

// Name is its name.
func (c *Call) Name() string { return c.entry.name }

// Key is its key, the same in every process. It isn't printed.
func (c *Call) Key() string { return c.entry.key }

// Sent reports whether there is a request to send again; one without was begun, and its process died before it sent.
func (c *Call) Sent() bool { return c.entry.request != nil }

// Format prints nothing of key and request.
func (c *Call) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "call, sent: %t", c.Sent())
}

// Begin returns the call of this name, begun now or by a process before. Its key is on disk when this returns.
func (o *Outbox) Begin(name string) (*Call, error) {
	if name == "" || len(name) > maxNameBytes {
		return nil, fmt.Errorf("semel: a call's name has 1 to %d bytes", maxNameBytes)
	}
	fresh := entry{name: name, key: NewKey(), created: float64(time.Now().UnixMicro()) / 1e6}
	for {
		found := &fresh
		made, err := o.link(fresh)
		if err == nil && !made {
			// If that is gone too, another process has forgotten it between the two steps: begin anew.
			found, err = o.get(name)
		}
		if err != nil {
			return nil, err
		}
		if found != nil {
			return &Call{o, *found}, o.sync()
		}
	}
}

// Pending returns every call without an answer, the oldest first.
func (o *Outbox) Pending() ([]*Call, error) {
	files, err := os.ReadDir(o.folder)
	if err != nil {
		return nil, err
	}
	var out []*Call
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".call") {
			continue
		}
		path := filepath.Join(o.folder, file.Name())
		found, err := o.read(path)
		if err != nil {
			return nil, err
		}
		if found != nil {
			out = append(out, &Call{o, *found})
		}
	}
	slices.SortFunc(out, func(a, b *Call) int {
		return cmp.Compare(a.entry.created, b.entry.created)
	})
	return out, nil
}

// Do keeps the request, and then sends it with the call's key: the client's Transport retries it. Of its headers, only the
// content type is kept; the others, such as credentials, go with this sending alone.
func (c *Call) Do(client *http.Client, req *http.Request) (*http.Response, error) {
	stored, err := storedOf(req)
	if err != nil {
		return nil, err
	}
	kept, err := c.outbox.attach(c.entry, stored)
	if err != nil {
		return nil, err
	}
	c.entry = kept
	return c.Send(req.Context(), client, req.Header)
}

// Send sends the request that was kept, with the headers of this sending. The answer's owner calls Forget.
func (c *Call) Send(ctx context.Context, client *http.Client, header http.Header) (*http.Response, error) {
	stored := c.entry.request
	if stored == nil {
		return nil, errors.New("semel: this call was begun, and never sent anything: make its request anew, or forget it")
	}
	if c.entry.maybeSent {
		ctx = context.WithValue(ctx, maybeSentContext{}, true)
	}
	c.entry.maybeSent = true
	req, err := http.NewRequestWithContext(ctx, stored.Method, stored.URL, bytes.NewReader(stored.Body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if stored.ContentType != nil {
		req.Header.Set("Content-Type", *stored.ContentType)
	}
	req.Header.Set(KeyHeader, c.entry.key)
	return client.Do(req)
}

// Forget takes the call out of the outbox, answered or not: keep the answer first. What has become another call, or has
// got a request since this one was read, stays: somebody works on it.
func (c *Call) Forget() error {
	o, path := c.outbox, c.outbox.path(c.entry.name)
	if found, err := o.read(path); err != nil || !isSame(found, c.entry) {
		return err
	}
	// For those who sweep: since when it is aside, not how old the call is.
	now := time.Now()
	_ = os.Chtimes(path, now, now)
	// What is looked at aside can't change any more; by its name it could, between the look and the removal.
	moved := filepath.Join(o.folder, aside+randomName())
	if err := os.Rename(path, moved); err != nil {
		return unlessGone(err)
	}
	found, err := o.read(moved)
	if err != nil || !isSame(found, c.entry) {
		err = errors.Join(err, putBack(moved, path))
	}
	return errors.Join(err, unlessGone(os.Remove(moved)), o.sync())
}

// storedRequest is what is sent, without credentials: those are the sender's, and never on disk.
type storedRequest struct {
	Method      string  `json:"method"`
	URL         string  `json:"url"`
	ContentType *string `json:"content_type"`
	Body        []byte  `json:"body_base64"`
}

func storedOf(req *http.Request) (*storedRequest, error) {
	body := []byte{}
	if req.Body != nil {
		defer closeBody(req)
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	at := *req.URL
	at.User = nil
	out := &storedRequest{Method: req.Method, URL: at.String(), Body: body}
	set(&out.Method, http.MethodGet)
	if media := req.Header.Get("Content-Type"); media != "" {
		out.ContentType = &media
	}
	return out, nil
}

func (r *storedRequest) equals(other *storedRequest) bool {
	if r == nil || other == nil {
		return r == other
	}
	media := func(r *storedRequest) string {
		if r.ContentType == nil {
			return ""
		}
		return *r.ContentType
	}
	return r.Method == other.Method && r.URL == other.URL && media(r) == media(other) && bytes.Equal(r.Body, other.Body)
}

// entry is a call as its file has it.
type entry struct {
	name    string
	key     string
	created float64
	request *storedRequest
	// Whether somebody may have sent it: its request was on disk before it was read or attached.
	maybeSent bool
}

type file struct {
	Version int            `json:"version"`
	Name    string         `json:"name"`
	Key     string         `json:"key"`
	Created float64        `json:"created"`
	Request *storedRequest `json:"request"`
}

func isSame(found *entry, other entry) bool {
	return found != nil && found.key == other.key && (found.request == nil) == (other.request == nil)
}

// attach keeps what the call sends, unless it was begun with something else.
func (o *Outbox) attach(e entry, request *storedRequest) (entry, error) {
	isKnown := func(other *storedRequest) bool { return other == nil || other.equals(request) }
	for {
		// Asked of the disk: the entry is as old as its reading, and others may have gone on with the call.
		found, err := o.get(e.name)
		if err != nil {
			return e, err
		}
		if !isKnown(e.request) || (found != nil && (found.key != e.key || !isKnown(found.request))) {
			return e, ErrCallChanged
		}
		switch {
		case found == nil:
			// Whoever forgot it may have sent it.
			e.request, e.maybeSent = request, true
			made, err := o.link(e)
			if err != nil {
				return e, err
			}
			if !made {
				continue
			}
			found = &e
		case found.request == nil:
			found.request, found.maybeSent = request, e.maybeSent
			written, err := o.write(*found)
			if err != nil {
				return e, err
			}
			if err := os.Rename(written, o.path(e.name)); err != nil {
				return e, err
			}
		}
		return *found, o.sync()
	}
}

func (o *Outbox) get(name string) (*entry, error) {
	return o.read(o.path(name))
}

func (o *Outbox) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(o.folder, hex.EncodeToString(sum[:])+".call")
}

func (o *Outbox) read(path string) (*entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, unlessGone(err)
	}
	base := filepath.Base(path)
	damaged := fmt.Errorf("%w: %s", ErrOutboxDamaged, base)
	var found file
	if json.Unmarshal(text, &found) != nil || found.Version != 1 || CheckKey(found.Key) != nil || found.Name == "" {
		return nil, damaged
	}
	if found.Request != nil && (found.Request.Method == "" || found.Request.URL == "") {
		return nil, damaged
	}
	if !strings.HasPrefix(base, aside) && o.path(found.Name) != path {
		// It would be sent as another call, and never be forgotten.
		return nil, damaged
	}
	return &entry{found.Name, found.Key, found.Created, found.Request, found.Request != nil}, nil
}

// link writes the entry, unless there is a call of its name.
func (o *Outbox) link(e entry) (bool, error) {
	written, err := o.write(e)
	if err != nil {
		return false, err
	}
	err = os.Link(written, o.path(e.name))
	removed := os.Remove(written)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, errors.Join(err, unlessGone(removed))
}

func (o *Outbox) write(e entry) (string, error) {
	text, err := encode(file{1, e.name, e.key, e.created, e.request})
	if err != nil {
		return "", err
	}
	path := filepath.Join(o.folder, beside+randomName())
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = to.Write(text)
	return path, errors.Join(err, to.Sync(), to.Close())
}

// sync makes names durable: without this, one could be lost although its file is safe.
func (o *Outbox) sync() error {
	folder, err := os.Open(o.folder)
	if err != nil {
		return err
	}
	// Some systems have no such call for folders, and need none.
	_ = folder.Sync()
	return folder.Close()
}

// sweep mends what a process that died left: beside, while it wrote; aside, while it forgot.
func (o *Outbox) sweep() error {
	entries, err := os.ReadDir(o.folder)
	if err != nil {
		return err
	}
	for _, found := range entries {
		info, err := found.Info()
		if err != nil || time.Since(info.ModTime()) < stale {
			continue
		}
		path := filepath.Join(o.folder, found.Name())
		switch {
		case strings.HasPrefix(found.Name(), beside):
			err = os.Remove(path)
		case strings.HasPrefix(found.Name(), aside):
			// It may not have been the one to forget. With its key, asking again does no harm; forgetting it could.
			left, damaged := o.read(path)
			if damaged != nil || left == nil {
				continue
			}
			err = errors.Join(putBack(path, o.path(left.name)), unlessGone(os.Remove(path)))
		}
		if unlessGone(err) != nil {
			return err
		}
	}
	return nil
}

// putBack links a file to its name, unless that was begun anew meanwhile: the newer call is what stands there.
func putBack(from, to string) error {
	if err := os.Link(from, to); !errors.Is(err, fs.ErrExist) {
		return unlessGone(err)
	}
	return nil
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func randomName() string {
	var name [8]byte
	_, _ = rand.Read(name[:])
	return hex.EncodeToString(name[:])
}
