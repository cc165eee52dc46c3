package webhooks

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
)

// A Preset is how a provider signs: Stripe, GitHub, Shopify, Slack or Standard.
type Preset struct {
	name string
	key  func(secret string) ([]byte, error)
	text func(digest []byte) string
	read func(http.Header) (signature, error)
	id   func(http.Header, []byte) (string, error)
}

// signature is what a request says of its signature.
type signature struct {
	// before is what is signed in front of the body.
	before     string
	signatures []string
	seconds    string
}

// The presets.
var (
	// Stripe: Stripe-Signature; the event's id.
	Stripe = Preset{
		name: "stripe", key: bytesOf, text: hex.EncodeToString, read: readStripe,
		id: func(_ http.Header, body []byte) (string, error) { return member(body, "id"), nil },
	}
	// GitHub: X-Hub-Signature-256; X-GitHub-Delivery, which isn't signed.
	GitHub = Preset{
		name: "github", key: bytesOf, text: hex.EncodeToString,
		read: func(header http.Header) (signature, error) {
			given, err := after("sha256=", header, "X-Hub-Signature-256")
			return signature{signatures: []string{given}}, err
		},
		id: func(header http.Header, _ []byte) (string, error) { return maybe(header, "X-GitHub-Delivery") },
	}
	// Shopify: X-Shopify-Hmac-SHA256; X-Shopify-Webhook-Id, which isn't signed.
	Shopify = Preset{
		name: "shopify", key: bytesOf, text: base64.StdEncoding.EncodeToString,
		read: func(header http.Header) (signature, error) {
			given, err := one(header, "X-Shopify-Hmac-SHA256")
			return signature{signatures: []string{given}}, err
		},
		id: func(header http.Header, _ []byte) (string, error) { return maybe(header, "X-Shopify-Webhook-Id") },
	}
	// Slack: X-Slack-Signature; the event's event_id, and a digest of the body for what has none, such as commands.
	Slack = Preset{
		name: "slack", key: bytesOf, text: hex.EncodeToString, read: readSlack,
		id: func(_ http.Header, body []byte) (string, error) {
			if id := member(body, "event_id"); id != "" {
				return id, nil
			}
			return "body-" + digestOf(body), nil
		},
	}
	// Standard: webhook-signature and webhook-id, as many providers send them (Standard Webhooks).
	Standard = Preset{
		name: "standard", key: standardKey, text: base64.StdEncoding.EncodeToString, read: readStandard,
		id: func(header http.Header, _ []byte) (string, error) { return one(header, "Webhook-Id") },
	}
)

func readStripe(header http.Header) (signature, error) {
	line, err := one(header, "Stripe-Signature")
	if err != nil {
		return signature{}, err
	}
	var out signature
	times := 0
	for _, item := range strings.Split(line, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(item), "="); name {
		case "t":
			times++
			out.seconds = value
		case "v1":
			out.signatures = append(out.signatures, value)
		}
	}
	out.before = out.seconds + "."
	if times != 1 {
		return out, refused(Malformed)
	}
	return out, checkSeconds(out.seconds)
}

func readSlack(header http.Header) (signature, error) {
	seconds, err := secondsIn(header, "X-Slack-Request-Timestamp")
	if err != nil {
		return signature{}, err
	}
	given, err := after("v0=", header, "X-Slack-Signature")
	return signature{"v0:" + seconds + ":", []string{given}, seconds}, err
}

func readStandard(header http.Header) (signature, error) {
	id, err := one(header, "Webhook-Id")
	if err != nil {
		return signature{}, err
	}
	seconds, err := secondsIn(header, "Webhook-Timestamp")
	if err != nil {
		return signature{}, err
	}
	line, err := one(header, "Webhook-Signature")
	if err != nil {
		return signature{}, err
	}
	if id == "" {
		return signature{}, refused(Malformed)
	}
	out := signature{before: id + "." + seconds + ".", seconds: seconds}
	for _, item := range strings.Split(line, " ") {
		if version, value, _ := strings.Cut(item, ","); version == "v1" {
			out.signatures = append(out.signatures, value)
		}
	}
	return out, nil
}

func bytesOf(secret string) ([]byte, error) { return []byte(secret), nil }

func standardKey(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return nil, errors.New("semel: the secret of the webhook is no base64")
	}
	return key, nil
}

// one returns the value of a header that is there once.
func one(header http.Header, name string) (string, error) {
	found := header.Values(name)
	if len(found) == 0 {
		return "", refused(Missing)
	}
	if len(found) > 1 || len(found[0]) > maxHeader {
		return "", refused(Malformed)
	}
	return found[0], nil
}

func maybe(header http.Header, name string) (string, error) {
	if len(header.Values(name)) == 0 {
		return "", nil
	}
	return one(header, name)
}

func after(prefix string, header http.Header, name string) (string, error) {
	line, err := one(header, name)
	if err != nil {
		return "", err
	}
	rest, found := strings.CutPrefix(line, prefix)
	if !found {
		return "", refused(Malformed)
	}
	return rest, nil
}

var seconds = regexp.MustCompile(`^[0-9]{1,12}$`)

func checkSeconds(text string) error {
	if !seconds.MatchString(text) {
		return refused(Malformed)
	}
	return nil
}

func secondsIn(header http.Header, name string) (string, error) {
	line, err := one(header, name)
	if err != nil {
		return "", err
	}
	return line, checkSeconds(line)
}

// member returns a text in a JSON object, or nothing.
func member(body []byte, name string) string {
	var members map[string]json.RawMessage
	var text string
	if json.Unmarshal(body, &members) != nil || json.Unmarshal(members[name], &text) != nil {
		return ""
	}
	return text
}
