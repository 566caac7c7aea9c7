package buildplan

// Images are the names of the images that s reads files of.
func (s Step) Images() (names []string) {
	if s.Copy != nil && s.Copy.Image != "" {
		names = append(names, s.Copy.Image)
	}
	if s.Run != nil {
		for _, m := range s.Run.Mounts {
			if m.Image != "" {
				names = append(names, m.Image)
			}
		}
	}
	return names
}

// ReadsContext reports whether s reads files of the context.
func (s Step) ReadsContext() bool {
	if c := s.Copy; c != nil && c.Stage < 0 && c.Image == "" && len(c.Sources) > 0 {
		return true
	}
	if s.Run != nil {
		for _, m := range s.Run.Mounts {
			if m.Type == "bind" && m.Stage < 0 && m.Image == "" {
				return true
			}
		}
	}
	return false
}
