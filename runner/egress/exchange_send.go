package egress

import (
	"context"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// aboutConnection are fields that say something of one connection only (RFC
// 9110 §7.6.1), or that the proxy sets itself.
var aboutConnection = []string{
	"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer",
	"transfer-encoding", "upgrade", "http2-settings", "host", "content-length", "expect", clientHeader, "sec-websocket-extensions",
}

// endToEnd leaves the fields of a request that go on to the server. Fields that
// a Connection field names stay behind too.
func endToEnd(fields []field) []field {
	named := aboutConnection
	for _, f := range fields {
		if f.name == "connection" {
			for token := range strings.SplitSeq(f.value, ",") {
				named = append(slices.Clip(named), strings.ToLower(textproto.TrimString(token)))
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return slices.Contains(named, f.name) })
}

// outgoing is the request as it is sent: what was decided, with nothing encoded
// anew, and with the rule's credential. The body is looked into from here on.
func (o *origin) outgoing(ctx context.Context, q *request, by passage) (*http.Request, error) {
	g := o.flow.proxy.reading
	if by.reads() {
		if err := g.checkHead(q); err != nil {
			return nil, err
		}
	}
	header := make(http.Header, len(q.fields)+4)
	for _, f := range q.fields {
		name := textproto.CanonicalMIMEHeaderKey(f.name)
		header[name] = append(header[name], f.value)
	}
	if by.reads() {
		removeFields(header, overrideFields)
	}
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{""} // the client sent none; nor does the transport
	}
	if q.trailers {
		header["Te"] = []string{"trailers"}
	}
	if err := g.inject(header, by.entry.Inject, o.scheme); err != nil {
		return nil, err
	}
	out := &http.Request{Method: q.method, URL: o.url(q), Host: o.host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if q.body != nil {
		if err := q.body.admit(by, o.flow.proxy, header); err != nil {
			return nil, err
		}
		out.Body, out.ContentLength = q.body, q.body.length
		if q.expect {
			header["Expect"] = []string{"100-continue"}
		}
	}
	if q.socket != nil {
		header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	return out.WithContext(ctx), nil
}

// url keeps the path as it was decided: net/url takes Opaque as it is.
func (o *origin) url(q *request) *url.URL {
	query, has := strings.CutPrefix(q.query, "?")
	return &url.URL{Scheme: o.scheme, Host: o.host, Opaque: q.path, RawQuery: query, ForceQuery: has && query == ""}
}

// headSize is the size of a request's head, in bytes, as HTTP/1.1 writes it.
func headSize(r *http.Request) int {
	n := len(r.Method) + len(r.URL.RequestURI()) + len("  HTTP/1.1\r\nHost: \r\n\r\n") + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// hostField is how a target is written in a Host field: a scheme's own port is
// left out.
func hostField(t Target, scheme string) string {
	if scheme == "http" && t.Port == 80 || scheme == "https" && t.Port == 443 {
		return t.Host
	}
	return net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
}
