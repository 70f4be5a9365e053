// Package layout holds the rules for where things are in this repository, as functions over its files, and the tests that
// hold the repository to them: what lies at the top level, who may import whom, what each service and each package of the
// library consists of, and what the source itself may not contain.
//
// A rule answers with problems, one sentence each, that begin with the path and say what to do. It promises to find what
// parsing the source shows; it loads no types.
package layout
