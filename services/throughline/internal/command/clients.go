package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/throughline/internal/stack"
)

// operatorTimeout bounds one command of an operator.
const operatorTimeout = 30 * time.Second

// clientsCommand manages who may call.
func clientsCommand(environ []string) *cobra.Command {
	c := &clientsRun{environ: environment(environ)}
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Say who may call: give clients API keys, exchange and revoke them",
		Long: `Say who may call: give clients API keys, exchange and revoke them.

It calls the order service, with the operator credential in THROUGHLINE_OPERATOR_CREDENTIAL, or else the one of the system that was
started by "throughline up" with the same data folder. A key is made here and shown once; only its hash leaves this program.
Gateways notice a revoked key within ten seconds.`,
	}
	f := cmd.PersistentFlags()
	f.StringVar(&c.order, "order", "", "the order service's gRPC address (default THROUGHLINE_ORDER_ADDR, or 127.0.0.1:9110)")
	f.StringVar(&c.data, "data", stack.Defaults().Data, "data folder of the system on this machine")

	add := &cobra.Command{
		Use: "add CLIENT", Short: "Give a client one more key; makes the client if there is none of that name", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, func(ctx context.Context, s orderv1.ClientServiceClient) error {
				return c.add(ctx, cmd.OutOrStdout(), s, args[0], nil)
			})
		},
	}
	rotate := &cobra.Command{
		Use: "rotate CLIENT", Short: "Give a client a new key, and end its other keys after a time", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, func(ctx context.Context, s orderv1.ClientServiceClient) error {
				return c.add(ctx, cmd.OutOrStdout(), s, args[0], &c.overlap)
			})
		},
	}
	rotate.Flags().DurationVar(&c.overlap, "overlap", 24*time.Hour, "how long the other keys go on; 0 ends them at once")
	for _, with := range []*cobra.Command{add, rotate} {
		with.Flags().StringSliceVar(&c.scopes, "scopes", []string{string(apikey.OrdersRead), string(apikey.OrdersWrite)}, "what the key is for")
	}
	revoke := &cobra.Command{
		Use: "revoke CLIENT [KEY-PREFIX]", Short: "End one key of a client, or all of them", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, func(ctx context.Context, s orderv1.ClientServiceClient) error {
				return revokeKeys(ctx, cmd.OutOrStdout(), s, args)
			})
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "List the clients and their keys", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(ctx context.Context, s orderv1.ClientServiceClient) error {
				return listClients(ctx, cmd.OutOrStdout(), s)
			})
		},
	}
	cmd.AddCommand(add, rotate, revoke, list)
	return cmd
}

type clientsRun struct {
	environ map[string]string
	order   string
	data    string
	scopes  []string
	overlap time.Duration
}

// run connects to the order service as an operator and calls it.
func (c *clientsRun) run(cmd *cobra.Command, call func(context.Context, orderv1.ClientServiceClient) error) error {
	credential := c.environ["THROUGHLINE_OPERATOR_CREDENTIAL"]
	if credential == "" {
		var err error
		if credential, err = stack.OperatorCredential(c.data); err != nil {
			return err
		}
	}
	if credential == "" {
		return errors.New("there is no operator credential: set THROUGHLINE_OPERATOR_CREDENTIAL, or --data to the folder of a running system")
	}
	addr := c.order
	if addr == "" {
		addr = c.environ["THROUGHLINE_ORDER_ADDR"]
	}
	if addr == "" {
		addr = "127.0.0.1:9110"
	}
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: addr, Credential: credential})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), operatorTimeout)
	defer cancel()
	if err := call(grpcx.Outgoing(ctx, grpcx.Entries{}), orderv1.NewClientServiceClient(conn)); err != nil {
		return explainCall(addr, err)
	}
	return nil
}

// explainCall tells an operator what a service said.
func explainCall(addr string, err error) error {
	for _, v := range grpcx.Violations(err) {
		return fmt.Errorf("%s %s", v.Path, v.Detail)
	}
	return fmt.Errorf("calling the service at %s: %w", addr, err)
}

func (c *clientsRun) add(ctx context.Context, out io.Writer, s orderv1.ClientServiceClient, client string, overlap *time.Duration) error {
	key := apikey.Mint()
	req := &orderv1.AddKeyRequest{ClientId: client, Prefix: key.Prefix, Sha256: key.Hash[:]}
	for _, name := range c.scopes {
		scope, ok := scopeNames[apikey.Scope(name)]
		if !ok {
			return fmt.Errorf("there is no scope %q; there are %s and %s", name, apikey.OrdersRead, apikey.OrdersWrite)
		}
		req.Scopes = append(req.Scopes, scope)
	}
	if overlap != nil {
		after := int64(overlap.Seconds())
		req.RevokeOthersAfterSeconds = &after
	}
	if _, err := s.AddKey(ctx, req); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s\n", key.Text)
	return err
}

var scopeNames = map[apikey.Scope]orderv1.Scope{
	apikey.OrdersRead: orderv1.Scope_SCOPE_ORDERS_READ, apikey.OrdersWrite: orderv1.Scope_SCOPE_ORDERS_WRITE,
}

func revokeKeys(ctx context.Context, out io.Writer, s orderv1.ClientServiceClient, args []string) error {
	req := &orderv1.RevokeKeysRequest{ClientId: args[0]}
	if len(args) > 1 {
		prefix := args[1]
		if p, ok := apikey.Prefix(prefix); ok {
			prefix = p // somebody has pasted the whole key
		}
		req.Prefix = prefix
	}
	resp, err := s.RevokeKeys(ctx, req)
	if err != nil {
		return err
	}
	return table(out, []*orderv1.Client{{ClientId: args[0], Keys: resp.GetKeys()}})
}

func listClients(ctx context.Context, out io.Writer, s orderv1.ClientServiceClient) error {
	resp, err := s.ListClients(ctx, &orderv1.ListClientsRequest{})
	if err != nil {
		return err
	}
	return table(out, resp.GetClients())
}

func table(out io.Writer, clients []*orderv1.Client) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tKEY\tSCOPES\tCREATED\tENDS")
	for _, c := range clients {
		for _, k := range c.GetKeys() {
			var scopes []string
			for _, name := range apikey.Scopes() {
				for _, s := range k.GetScopes() {
					if scopeNames[name] == s {
						scopes = append(scopes, string(name))
					}
				}
			}
			ends := "-"
			if k.GetRevokedAt() != nil {
				ends = k.GetRevokedAt().AsTime().Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%s\t%s_…\t%s\t%s\t%s\n", c.GetClientId(), k.GetPrefix(), strings.Join(scopes, ","), k.GetCreatedAt().AsTime().Format(time.RFC3339), ends)
		}
	}
	return w.Flush()
}
