package ledger

import "github.com/countersign-dev/countersign/policy/contract"

// escapeValue escapes every string and every key of a decoded JSON value.
func escapeValue(v any) any {
	switch v := v.(type) {
	case string:
		return contract.Escape(v)
	case []any:
		for i := range v {
			v[i] = escapeValue(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[contract.Escape(k)] = escapeValue(e)
		}
		return out
	}
	return v
}

// valuePrintable reports whether every string and key of v is printable.
func valuePrintable(v any) bool {
	switch v := v.(type) {
	case string:
		return contract.Printable(v)
	case []any:
		for _, e := range v {
			if !valuePrintable(e) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			if !contract.Printable(k) || !valuePrintable(e) {
				return false
			}
		}
	}
	return true
}
