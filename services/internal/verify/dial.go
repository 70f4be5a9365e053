package verify

import (
	"google.golang.org/grpc"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// Dial makes a verifier that asks the services at these addresses, by their names, with an operator's credential. It does not wait for them. The
// caller calls done once.
func Dial(addrs map[string]string, credential string) (v *Verifier, done func(), err error) {
	var conns []*grpc.ClientConn
	done = func() {
		for _, c := range conns {
			_ = c.Close() // nothing is open on it any more
		}
	}
	v = &Verifier{Services: make(map[string]verifyv1.VerifyServiceClient, len(addrs))}
	for service, addr := range addrs {
		conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: addr, Credential: credential})
		if err != nil {
			done()
			return nil, nil, err
		}
		conns = append(conns, conn)
		v.Services[service] = verifyv1.NewVerifyServiceClient(conn)
	}
	return v, done, nil
}
