// Package deadletters serves a service's dead letters to operators: throughline.deadletter.v1.DeadLetterService.
package deadletters
