package service_test

import (
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/services/internal/topology"
)

// command is a message that the payment service's consumer takes.
func command(t *testing.T) messaging.Message {
	t.Helper()
	order := keys.OrderID("client", t.Name())
	return messaging.Message{
		ID: keys.NewMessageID(), Kind: messaging.Command, Subject: messaging.CommandPrefix + topology.Payment + ".authorize_payment",
		Type: "throughline.payment.v1.AuthorizePayment", Source: topology.OrderSource, AggregateID: order,
		StepName: "authorize_payment", StepKey: keys.StepKey(order, "authorize_payment"), CreatedAt: time.Now(),
	}
}
