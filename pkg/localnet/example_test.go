package localnet_test

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/throughline/throughline/pkg/localnet"
)

// A server is given what Listen returns, and clients of gRPC dial with grpc.WithContextDialer(network.DialContext).
func Example() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	network := localnet.New()
	server := network.Listen(l)
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "reached by a "+conn.RemoteAddr().Network())
		_ = conn.Close()
	}()

	conn, err := network.DialContext(context.Background(), l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	said, err := io.ReadAll(conn)
	fmt.Println(string(said), err)
	// Output: reached by a pipe <nil>
}
