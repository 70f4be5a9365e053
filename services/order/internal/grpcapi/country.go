package grpcapi

import (
	"slices"

	"github.com/biter777/countries"
)

// notCountries are codes that the library knows and ISO 3166-1 does not have (any more): the Netherlands Antilles, Kosovo under a code
// of users' own, and Yugoslavia.
var notCountries = []string{"AN", "XK", "YU"}

// isCountry tells whether code is an ISO 3166-1 alpha-2 code, in upper case.
func isCountry(code string) bool {
	if len(code) != 2 || slices.Contains(notCountries, code) {
		return false
	}
	// The library also takes names and codes of other lists, in any case.
	return countries.ByName(code).Alpha2() == code
}
