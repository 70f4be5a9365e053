//go:build unix

package pgcluster_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/postgres/pgcluster"
)

func ExampleStart() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	defer pgcluster.Remove(ctx, dir) // the data may be elsewhere

	cluster, err := pgcluster.Start(ctx, pgcluster.Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Stop(ctx)

	if err := cluster.CreateDatabase(ctx, "orders", "clerk", "secret"); err != nil {
		fmt.Println(err)
		return
	}
	conn, err := pgx.Connect(ctx, cluster.URL("orders", "clerk", "secret"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	var who string
	fmt.Println(conn.QueryRow(ctx, `SELECT current_user || ' in ' || current_database()`).Scan(&who), who)
	// Output: <nil> clerk in orders
}
