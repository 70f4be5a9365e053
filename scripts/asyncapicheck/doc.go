// Package asyncapicheck holds the AsyncAPI document of the events to what is really so: to the constants of the services'
// topology, to the protobuf descriptors, and to messages that went through the broker. [Document.Check] is for every test
// that sees events.
//
// Whether the document is a valid one is for the specification's own parser to say, which runs on Node.js: see validate.mjs
// and the target check-asyncapi of the Makefile.
package asyncapicheck
