// Package credentials says what tells callers apart where nobody says who they are.
package credentials

import (
	"net/http"
	"slices"
	"strings"
)

// Names are the headers that count, in this order.
var Names = []string{
	"authorization",
	"x-api-key",
	"proxy-authorization",
	"api-key",
	"apikey",
	"x-apikey",
	"x-auth-token",
	"x-access-token",
	"x-session-token",
	"private-token",
	"job-token",
	"ocp-apim-subscription-key",
	"x-functions-key",
	"x-goog-api-key",
	"x-goog-iap-jwt-assertion",
	"x-amz-security-token",
	"x-amzn-oidc-data",
	"x-amzn-oidc-accesstoken",
	"x-amzn-oidc-identity",
	"x-ms-client-principal",
	"cf-access-jwt-assertion",
	"cf-access-client-id",
	"cf-access-client-secret",
	"x-auth-request-user",
	"x-auth-request-email",
	"x-auth-request-access-token",
	"x-forwarded-user",
	"x-forwarded-email",
	"x-forwarded-preferred-username",
	"x-forwarded-access-token",
	"x-remote-user",
	"remote-user",
	"client-cert",
	"x-forwarded-client-cert",
	"x-client-cert",
	"x-ssl-client-cert",
}

// Always is how many of them count also where they are absent.
const Always = 2

// Certificate is the name under which a certificate counts. No header has it.
const Certificate = ":client-certificate"

var signIn = []string{
	"login", "log-in", "log_in", "logon", "signin", "sign-in", "sign_in", "auth", "authorize", "authenticate",
	"oauth", "oauth2", "oidc", "openid-connect", "sso", "saml", "saml2",
}

// Counted is a name, and its values in a request.
type Counted struct {
	Name   string
	Values []string
}

// Rules are what counts besides the usual headers; of the cookies those that are named, or else all of them.
type Rules struct {
	Headers []string
	Cookies []string
}

// Count returns what counts of a request, in an order that isn't the request's.
func (r Rules) Count(header http.Header, certificate string) []Counted {
	var out []Counted
	names := slices.Clone(Names)
	for _, more := range r.Headers {
		if name := strings.ToLower(more); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i, name := range names {
		values := header.Values(name)
		if i < Always || len(values) > 0 {
			out = append(out, Counted{name, values})
		}
	}
	if cookies := r.cookies(header.Values("Cookie")); len(cookies) > 0 {
		out = append(out, Counted{"cookie", cookies})
	}
	if certificate != "" {
		out = append(out, Counted{Certificate, []string{certificate}})
	}
	return out
}

func (r Rules) cookies(lines []string) []string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return line == "" })
	if len(lines) == 0 {
		return nil
	}
	if len(r.Cookies) == 0 {
		return []string{strings.Join(lines, "; ")}
	}
	var out []string
	for _, name := range r.Cookies {
		for _, line := range lines {
			for pair := range strings.SplitSeq(line, ";") {
				if pair = strings.TrimSpace(pair); strings.HasPrefix(pair, name+"=") {
					out = append(out, pair)
				}
			}
		}
	}
	return out
}

// Any reports whether any of these is there.
func Any(counted []Counted) bool {
	return slices.ContainsFunc(counted, func(c Counted) bool { return len(c.Values) > 0 })
}

// AsksToSignIn reports whether an answer says that credentials are missing. A 303 says that something was done.
func AsksToSignIn(status int, location string) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return true
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return false
	}
	if end := strings.IndexAny(location, "?#"); end >= 0 {
		location = location[:end]
	}
	for segment := range strings.SplitSeq(location, "/") {
		if end := strings.IndexAny(segment, ".;"); end >= 0 {
			segment = segment[:end]
		}
		if slices.Contains(signIn, strings.ToLower(segment)) {
			return true
		}
	}
	return false
}
