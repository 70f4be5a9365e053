// Package republish serves what a service has sent, and sending it again, to operators: throughline.outbox.v1.OutboxService.
package republish
