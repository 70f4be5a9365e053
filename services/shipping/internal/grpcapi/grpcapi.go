// Package grpcapi serves the shipping service's gRPC: what became of a step. It has no other way in, all work comes as commands.
package grpcapi

import (
	"google.golang.org/grpc"

	"github.com/throughline/throughline/services/internal/stepapi"
)

// Register gives the function that adds the services to a server. db is the service's own database.
func Register(db stepapi.Database) func(grpc.ServiceRegistrar) {
	return func(s grpc.ServiceRegistrar) { stepapi.Register(s, db) }
}
