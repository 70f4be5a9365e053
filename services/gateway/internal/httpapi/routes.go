package httpapi

import (
	"net/http"
	"slices"
	"strings"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
)

// route is what this package has to know of a route beside what http.yaml says of it. A test compares the two.
type route struct {
	method  string
	pattern string // as in http.yaml
	rpc     string // full gRPC method name
	status  int    // of success
	query   []string
	// emptyBody says that no body means {}.
	emptyBody bool
}

func routes() []route {
	return []route{
		{method: http.MethodPost, pattern: "/v1/orders", rpc: orderv1.OrderService_CreateOrder_FullMethodName,
			status: http.StatusCreated},
		{method: http.MethodGet, pattern: "/v1/orders", rpc: orderv1.OrderService_ListOrders_FullMethodName,
			status: http.StatusOK, query: []string{"page_size", "page_token"}},
		{method: http.MethodGet, pattern: "/v1/orders/{order_id}", rpc: orderv1.OrderService_GetOrder_FullMethodName,
			status: http.StatusOK},
		{method: http.MethodPost, pattern: "/v1/orders/{order_id}/cancel",
			rpc: orderv1.OrderService_CancelOrder_FullMethodName, status: http.StatusOK, emptyBody: true},
	}
}

// match finds the route of a request. Without one it answers the methods that the path has: none for an unknown path.
func match(all []route, method, path string) (found *route, allow []string) {
	for i := range all {
		if !matches(all[i].pattern, path) {
			continue
		}
		if all[i].method == method {
			return &all[i], nil
		}
		allow = append(allow, all[i].method)
		if all[i].method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	return nil, allow
}

func matches(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if isVariable(want[i]) {
			if got[i] == "" {
				return false
			}
		} else if want[i] != got[i] {
			return false
		}
	}
	return true
}

// pathVariables answers the names of the fields that a path fills in.
func pathVariables(pattern string) []string {
	var names []string
	for part := range strings.SplitSeq(pattern, "/") {
		if isVariable(part) {
			names = append(names, strings.Trim(part, "{}"))
		}
	}
	return names
}

func isVariable(part string) bool { return strings.HasPrefix(part, "{") }
