package sbxerr

// maxWord bounds the work for a hostile word, in bytes.
const maxWord = 256

// Nearest returns the candidate that word is most likely a misspelling of, or
// "" where none is near: at most a third of the word's letters may differ,
// and two are always forgiven.
func Nearest(word string, candidates []string) string {
	if len(word) > maxWord {
		return "" // longer than any name, and not worth the time
	}
	best, bestDistance := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(word, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
