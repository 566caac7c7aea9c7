package pod

import (
	"errors"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// File is one file of a volume, at a path below the volume.
type File struct {
	Path string
	Mode int32
	Data []byte
}

// defaultMode is what the API server gives, too.
const defaultMode int32 = 0o644

// Files returns the files of each volume of ConfigMaps, Secrets and tokens, by the volume's name.
// Its error is about volumes that are left out.
func Files(p *corev1.Pod, f Facts) (map[string][]File, error) {
	volumes := map[string][]File{}
	var errs []error
	for _, v := range p.Spec.Volumes {
		var files []File
		var err error
		switch {
		case v.ConfigMap != nil:
			files, err = ofConfigMap(v.ConfigMap, f)
		case v.Secret != nil:
			files, err = ofSecret(v.Secret, f)
		case v.Projected != nil && !apiAccess(v):
			files, err = ofProjected(p, v.Projected, f)
		default:
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		volumes[v.Name] = files
	}
	return volumes, errors.Join(errs...)
}

func ofConfigMap(s *corev1.ConfigMapVolumeSource, f Facts) ([]File, error) {
	m := f.ConfigMaps[s.Name]
	if m == nil {
		return nil, missing(s.Optional, "ConfigMap %q", s.Name)
	}
	data := map[string][]byte{}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, m.BinaryData)
	return pick(data, s.Items, s.DefaultMode, s.Optional, s.Name)
}

func ofSecret(s *corev1.SecretVolumeSource, f Facts) ([]File, error) {
	m := f.Secrets[s.SecretName]
	if m == nil {
		return nil, missing(s.Optional, "Secret %q", s.SecretName)
	}
	return pick(m.Data, s.Items, s.DefaultMode, s.Optional, s.SecretName)
}

func pick(data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool, name string) ([]File, error) {
	usual := defaultMode
	if mode != nil {
		usual = *mode
	}
	var files []File
	if items == nil {
		for _, k := range slices.Sorted(maps.Keys(data)) {
			files = append(files, File{Path: k, Mode: usual, Data: data[k]})
		}
		return files, nil
	}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			if err := missing(optional, "the key %q of %q", item.Key, name); err != nil {
				return nil, err
			}
			continue
		}
		file := File{Path: path.Clean("/" + item.Path)[1:], Mode: usual, Data: content}
		if item.Mode != nil {
			file.Mode = *item.Mode
		}
		files = append(files, file)
	}
	return files, nil
}
