// Package console tests the operators' web page in a browser, on the whole system.
package console
