package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/throughline/internal/stack"
)

// operatorTimeout bounds one command of an operator.
const operatorTimeout = 30 * time.Second

// clientsCommand manages who may call.
func clientsCommand(environ []string) *cobra.Command {
	c := &clientsRun{operator: operator{environ: environment(environ)}}
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Say who may call: give clients API keys, exchange and revoke them",
		Long: `Say who may call: give clients API keys, exchange and revoke them.

It calls the order service, with the operator credential in THROUGHLINE_OPERATOR_CREDENTIAL, or else the one of the system that was
started by "throughline up" with the same data folder. A key is made here and shown once; only its hash leaves this program.
Gateways notice a revoked key within ten seconds.`,
	}
	c.flags(cmd, stack.Order)
	done := func(what string) ending { return ending{0, what} }
	key, client := envelope(`"api_key":KEY,`, "throughline.order.v1.AddKeyResponse"), answers("throughline.order.v1.Client")

	add := describe(&cobra.Command{
		Use: "add CLIENT", Short: "Give a client one more key; makes the client if there is none of that name", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.add(cmd, args[0], nil) },
	}, key, done("the key was made, and is printed"), refusal)
	rotate := describe(&cobra.Command{
		Use: "rotate CLIENT", Short: "Give a client a new key, and end its other keys after a time", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.add(cmd, args[0], &c.overlap) },
	}, key, done("the key was made, and is printed"), refusal)
	rotate.Flags().DurationVar(&c.overlap, "overlap", 24*time.Hour, "how long the other keys go on; 0 ends them at once")
	for _, with := range []*cobra.Command{add, rotate} {
		with.Flags().StringSliceVar(&c.scopes, "scopes", []string{string(apikey.OrdersRead), string(apikey.OrdersWrite)}, "what the key is for")
		mustComplete(with, "scopes", several(scopeTexts()...))
	}
	revoke := describe(&cobra.Command{
		Use: "revoke CLIENT [KEY-PREFIX]", Short: "End one key of a client, or all of them", Args: cobra.RangeArgs(1, 2),
		RunE: c.revoke,
	}, client, done("the keys have ended; all of the client are printed"), ending{ExitNotFound, "there is no such client, or it has no such key"}, refusal)
	list := describe(&cobra.Command{
		Use: "list", Short: "List the clients and their keys", Args: cobra.NoArgs, RunE: c.list,
	}, client, done("all were printed"), refusal)
	rotate.ValidArgsFunction, revoke.ValidArgsFunction = c.complete, c.complete
	cmd.AddCommand(add, rotate, revoke, list)
	return cmd
}

type clientsRun struct {
	operator

	scopes  []string
	overlap time.Duration
}

// call calls the order service.
func (c *clientsRun) call(ctx context.Context, call func(context.Context, orderv1.ClientServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	return c.each(ctx, []string{stack.Order}, func(ctx context.Context, _ string, conn *grpc.ClientConn) error {
		return call(ctx, orderv1.NewClientServiceClient(conn))
	})
}

func (c *clientsRun) add(cmd *cobra.Command, client string, overlap *time.Duration) error {
	key := apikey.Mint()
	req := &orderv1.AddKeyRequest{ClientId: client, Prefix: key.Prefix, Sha256: key.Hash[:]}
	for _, name := range c.scopes {
		scope, ok := scopeNames[apikey.Scope(name)]
		if !ok {
			return fmt.Errorf("there is no scope %q; there are %s", name, strings.Join(scopeTexts(), " and "))
		}
		req.Scopes = append(req.Scopes, scope)
	}
	if overlap != nil {
		after := int64(overlap.Seconds())
		req.RevokeOthersAfterSeconds = &after
	}
	return c.call(cmd.Context(), func(ctx context.Context, s orderv1.ClientServiceClient) error {
		resp, err := s.AddKey(ctx, req)
		if err != nil {
			return err
		}
		if c.json {
			return printSaid(cmd.OutOrStdout(), said{Service: stack.Order, APIKey: key.Text}, resp)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", key.Text)
		return err
	})
}

var scopeNames = map[apikey.Scope]orderv1.Scope{
	apikey.OrdersRead: orderv1.Scope_SCOPE_ORDERS_READ, apikey.OrdersWrite: orderv1.Scope_SCOPE_ORDERS_WRITE,
}

func scopeTexts() []string {
	var texts []string
	for _, s := range apikey.Scopes() {
		texts = append(texts, string(s))
	}
	return texts
}

func (c *clientsRun) revoke(cmd *cobra.Command, args []string) error {
	req := &orderv1.RevokeKeysRequest{ClientId: args[0]}
	if len(args) > 1 {
		prefix := args[1]
		if p, ok := apikey.Prefix(prefix); ok {
			prefix = p // somebody has pasted the whole key
		}
		req.Prefix = prefix
	}
	return c.call(cmd.Context(), func(ctx context.Context, s orderv1.ClientServiceClient) error {
		resp, err := s.RevokeKeys(ctx, req)
		if err != nil {
			return err
		}
		return c.show(cmd.OutOrStdout(), []*orderv1.Client{{ClientId: args[0], Keys: resp.GetKeys()}})
	})
}

func (c *clientsRun) list(cmd *cobra.Command, _ []string) error {
	return c.call(cmd.Context(), func(ctx context.Context, s orderv1.ClientServiceClient) error {
		resp, err := s.ListClients(ctx, &orderv1.ListClientsRequest{})
		if err != nil {
			return err
		}
		return c.show(cmd.OutOrStdout(), resp.GetClients())
	})
}

// complete offers the clients, and then the keys of one that go on.
func (c *clientsRun) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	if len(args) > 1 || len(args) == 1 && cmd.Name() != "revoke" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offer(cmd, &found, func(ctx context.Context) error {
		return c.call(ctx, func(ctx context.Context, s orderv1.ClientServiceClient) error {
			resp, err := s.ListClients(ctx, &orderv1.ListClientsRequest{})
			for _, client := range resp.GetClients() {
				if len(args) == 0 {
					found = append(found, client.GetClientId())
					continue
				}
				for _, k := range client.GetKeys() {
					if client.GetClientId() == args[0] && k.GetRevokedAt() == nil {
						found = append(found, cobra.CompletionWithDesc(k.GetPrefix(), "made "+clock(k.GetCreatedAt())))
					}
				}
			}
			return err
		})
	})
}

func (c *clientsRun) show(out io.Writer, clients []*orderv1.Client) error {
	if !c.json {
		return table(out, clients)
	}
	for _, client := range clients {
		if err := c.print(out, stack.Order, client); err != nil {
			return err
		}
	}
	return nil
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
