package deploycheck

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/throughline/throughline/pkg/postgres/pgcluster"
)

// TestNATSConfiguration reads the file as the server does. It cannot be parallel: the server takes the token from the
// process's environment.
func TestNATSConfiguration(t *testing.T) {
	t.Setenv("NATS_TOKEN", "given")
	o, err := server.ProcessConfigFile(filepath.Join(deploy, "nats", "nats.conf"))
	if err != nil {
		t.Fatalf("reading nats.conf: %v", err)
	}
	if o.Authorization != "given" {
		t.Errorf("token: got %q, want the one from the environment", o.Authorization)
	}
	if !o.JetStream || o.StoreDir != "/data" {
		t.Errorf("JetStream: got %t in %q, want it on, in the folder of the volume", o.JetStream, o.StoreDir)
	}
	if o.SyncInterval != 250*time.Millisecond {
		t.Errorf("sync_interval: got %v, want 250ms: the outbox is set up for it", o.SyncInterval)
	}
	if o.HTTPHost != "127.0.0.1" || o.HTTPPort != 8222 {
		t.Errorf("monitoring: got %s:%d, want 127.0.0.1:8222, which the health check asks", o.HTTPHost, o.HTTPPort)
	}
}

func TestNATSVersionIsTheTestedOne(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../pkg/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`github\.com/nats-io/nats-server/v2 v(\S+)`).FindSubmatch(mod)
	if m == nil {
		t.Fatal("pkg/go.mod does not name the NATS server")
	}
	if got, want := project(t).Services["nats"].Image, "nats:"+string(m[1])+"-alpine"; got != want {
		t.Errorf("image: got %s, want %s, the version that the tests run", got, want)
	}
}

// TestDatabaseScript runs the script on a server of its own, since roles belong to a whole server.
func TestDatabaseScript(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, err := pgcluster.Start(ctx, pgcluster.Config{Dir: t.TempDir(), NoFsync: true, Install: true, Progress: t.Output()})
	if err != nil {
		t.Fatalf("starting Postgres: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("stopping Postgres: %v", err)
		}
		// The cluster lives outside of Dir where the server's user cannot enter that.
		if err := os.RemoveAll(filepath.Dir(c.DataDir())); err != nil {
			t.Errorf("removing the cluster: %v", err)
		}
	})
	runScript(t, c, "ORDER_DATABASE_PASSWORD=order's", "PAYMENT_DATABASE_PASSWORD=pay", "SHIPPING_DATABASE_PASSWORD=ship")

	tests := []struct {
		name, database, user, password string
		sqlState                       string // of the refusal; empty: it can connect and create a table
	}{
		{"order in its own", "order", "order", "order's", ""},
		{"payment in its own", "payment", "payment", "pay", ""},
		{"shipping in its own", "shipping", "shipping", "ship", ""},
		{"order in payment's", "payment", "order", "order's", "42501"},
		{"payment in order's", "order", "payment", "pay", "42501"},
		{"order with another password", "order", "order", "pay", "28P01"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := createTable(ctx, c.URL(tt.database, tt.user, tt.password))
			var refused *pgconn.PgError
			switch {
			case tt.sqlState == "" && err != nil:
				t.Errorf("got error %v, want none", err)
			case tt.sqlState != "" && (!errors.As(err, &refused) || refused.Code != tt.sqlState):
				t.Errorf("got error %v, want SQLSTATE %s", err, tt.sqlState)
			}
		})
	}
}

// runScript runs init.sh with psql of the server's own version, as its superuser.
func runScript(t *testing.T, c *pgcluster.Cluster, env ...string) {
	t.Helper()
	bin, err := pgcluster.Find(t.Context(), "")
	if err != nil {
		t.Fatalf("finding Postgres: %v", err)
	}
	super, err := url.Parse(c.SuperuserURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := super.User.Password()
	cmd := exec.CommandContext(t.Context(), filepath.Join(deploy, "postgres", "init.sh"))
	cmd.Env = append(env, "PATH="+strings.Join([]string{bin.Dir, os.Getenv("PATH")}, string(os.PathListSeparator)),
		"PGHOST="+super.Hostname(), "PGPORT="+super.Port(), "PGPASSWORD="+password)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running init.sh: %v\n%s", err, out)
	}
}

// createTable connects and does what a service's migration does first.
func createTable(ctx context.Context, connection string) error {
	conn, err := pgx.Connect(ctx, connection)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	_, err = conn.Exec(ctx, "CREATE TABLE probe (id bigint)")
	return errors.Join(err, conn.Close(ctx))
}
