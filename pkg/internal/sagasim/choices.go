package sagasim

import "math/rand/v2"

// choices is where a schedule comes from: numbers from a seed, or a script of such numbers. Of each choice 0 is what happens when
// nothing goes wrong, so a script of zeros is a quiet day, and what makes a schedule fail are its other numbers.
type choices struct {
	rng    *rand.Rand
	script []uint16 // nil with rng; past its end all is quiet
	taken  []uint16
}

func fromSeed(seed uint64) *choices {
	return &choices{rng: rand.New(rand.NewPCG(seed, 0x7468726f7567686c))} //nolint:gosec // it must be repeatable
}

func fromScript(script []uint16) *choices { return &choices{script: script} }

// pick chooses one of n.
func (c *choices) pick(n int) int {
	if n <= 1 {
		return 0
	}
	v := 0
	switch at := len(c.taken); {
	case c.rng != nil:
		v = c.rng.IntN(n)
	case at < len(c.script):
		v = min(int(c.script[at]), n-1)
	}
	c.taken = append(c.taken, uint16(v)) //nolint:gosec // all choices are among less than 65536
	return v
}

// chance says yes with a probability in thousandths.
func (c *choices) chance(perMille int) bool {
	if perMille <= 0 {
		return false
	}
	v := 0
	switch at := len(c.taken); {
	case c.rng != nil:
		if c.rng.IntN(1000) < perMille {
			v = 1
		}
	case at < len(c.script):
		v = int(c.script[at])
	}
	c.taken = append(c.taken, uint16(v)) //nolint:gosec // 0 or 1
	return v != 0
}
