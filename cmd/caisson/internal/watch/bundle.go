package watch

import (
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/bundle"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func BundleCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Carry images and files to hosts without a network",
		Long:  "Carry images and files, such as profiles, to hosts without a network: in one file, signed\nwith an ed25519 key. Keys are PEM files of bundle keygen or of openssl genpkey.",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(bundleCreateCommand(a), bundleInspectCommand(a), bundleLoadCommand(a), bundleKeygenCommand(a))
	return cmd
}

// keyFlags name the key of a bundle, or that there is none.
type keyFlags struct {
	file     string
	unsigned bool
}

func (k *keyFlags) register(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&k.file, "key", "", "`FILE` with the "+what+" key (PEM)")
	cmd.Flags().BoolVar(&k.unsigned, "unsigned", false, "do without a signature")
}

// read returns the text of the key; nil is none.
func (k *keyFlags) read() ([]byte, error) {
	if k.unsigned == (k.file != "") {
		return nil, cli.Usage("give --key FILE or --unsigned")
	}
	if k.unsigned {
		return nil, nil
	}
	text, err := os.ReadFile(k.file)
	if err != nil {
		return nil, bundleError(err)
	}
	return text, nil
}

func (k *keyFlags) public() (ed25519.PublicKey, error) {
	text, err := k.read()
	if err != nil || text == nil {
		return nil, err
	}
	return bundle.PublicKey(text)
}

func (k *keyFlags) private() (ed25519.PrivateKey, error) {
	text, err := k.read()
	if err != nil || text == nil {
		return nil, err
	}
	return bundle.PrivateKey(text)
}

func bundleError(err error) error {
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.bundle", err)
}

func bundleKeygenCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "keygen FILE",
		Short:   "Make a key to sign bundles with",
		Long:    "Make an ed25519 key: FILE has the private key, and FILE.pub the public one. Existing files\nare kept.",
		Example: "  caisson bundle keygen site.key",
		Args:    cli.Exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			private, public, err := bundle.NewKey()
			if err != nil {
				return err
			}
			if err := writeKey(args[0], private, 0o600); err != nil {
				return err
			}
			return writeKey(args[0]+".pub", public, 0o644)
		},
	}
}

func writeKey(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return bundleError(err)
	}
	_, err = f.Write(data)
	return bundleError(errors.Join(err, f.Close()))
}

func bundleCreateCommand(a *cli.App) *cobra.Command {
	var file string
	var images, profiles []string
	var key keyFlags
	cmd := &cobra.Command{
		Use:     "create -f FILE (--key FILE | --unsigned)",
		Short:   "Put images and files into a bundle",
		Example: "  caisson bundle create -f tools.bundle --key site.key --image tools",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" || len(images)+len(profiles) == 0 {
				return cli.Usage("give -f FILE, and what goes into it: --image or --profiles")
			}
			k, err := key.private()
			if err != nil {
				return err
			}
			return a.With(cmd.Context(), func(client *api.Client) error {
				m := maker{app: a, client: client}
				defer m.close()
				return m.create(cmd.Context(), file, k, images, profiles)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`FILE` to write")
	cmd.Flags().StringArrayVar(&images, "image", nil, "`IMAGE` to put in")
	cmd.Flags().StringArrayVar(&profiles, "profiles", nil, "`FILE` to put in, such as one with profiles or policies")
	key.register(cmd, "private")
	return cmd
}

// openBundle opens and verifies a bundle. The caller closes the file.
func openBundle(path string, key ed25519.PublicKey) (*os.File, *bundle.Bundle, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, bundleError(err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(bundleError(err), f.Close())
	}
	b, err := bundle.Read(f, info.Size(), key)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, b, nil
}

func bundleInspectCommand(a *cli.App) *cobra.Command {
	var key keyFlags
	cmd := &cobra.Command{
		Use:     "inspect FILE (--key FILE | --unsigned)",
		Short:   "Verify a bundle and show its manifest as JSON",
		Example: "  caisson bundle inspect tools.bundle --key site.key.pub",
		Args:    cli.Exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			k, err := key.public()
			if err != nil {
				return err
			}
			f, b, err := openBundle(args[0], k)
			if err != nil {
				return err
			}
			defer f.Close() // it was only read
			return a.PrintJSON(struct {
				Signed bool `json:"signed"`
				bundle.Manifest
			}{b.Signed, b.Manifest})
		},
	}
	key.register(cmd, "public")
	a.JsonOnly(cmd)
	return cmd
}

func bundleLoadCommand(a *cli.App) *cobra.Command {
	var key keyFlags
	var dir string
	cmd := &cobra.Command{
		Use:   "load FILE (--key FILE | --unsigned) [--profiles DIR]",
		Short: "Load the images and files of a bundle",
		Long: "Verify all of a bundle, then load its images. Images that are there are skipped, so a load\n" +
			"that was interrupted goes on. Files are written to the directory of --profiles; without it\n" +
			"they are named and left out.",
		Example: "  caisson bundle load tools.bundle --key site.key.pub --profiles .",
		Args:    cli.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := key.public()
			if err != nil {
				return err
			}
			f, b, err := openBundle(args[0], k)
			if err != nil {
				return err
			}
			defer f.Close() // it was only read
			return a.With(cmd.Context(), func(client *api.Client) error {
				for i, p := range b.Manifest.Parts {
					if p.Kind == bundle.Image {
						err = loadImage(a, cmd.Context(), client, p, b.Open(i))
					} else {
						err = loadFile(a, dir, p, b.Open(i))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&dir, "profiles", "", "existing directory `DIR` for files")
	key.register(cmd, "public")
	return cmd
}

// loadFile writes a file in one step.
func loadFile(a *cli.App, dir string, p bundle.Part, content io.Reader) error {
	if dir == "" {
		a.Progress("left out the file " + p.Name + ": name a directory with --profiles")
		return nil
	}
	err := cli.SaveFile(filepath.Join(dir, p.Name), func(w io.Writer) error {
		_, err := io.Copy(w, content)
		return bundleError(err)
	})
	if err != nil {
		return err
	}
	return a.PrintLine("%s", cli.Printable(filepath.Join(dir, p.Name)))
}

// holds reports whether an image is the one of a digest, here or where it was saved.
func holds(i *caissonv1.Image, digest string) bool {
	return digest != "" && i.GetDamaged() == "" && (i.GetDigest() == digest || i.GetSourceDigest() == digest)
}
